"""What lies between those who want something of jobs on other machines, and the courier, who alone can reach these.

Files of the workspace, in `.scalebook/cluster/`: who wants something leaves it there, and what the courier knows it
leaves there, or in the job's folder (`remote.json`). So whoever may read the workspace may ask, without Ray.
"""

import hashlib
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from scalebook.training.base.files import records
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs.begin_request import RayHandle, folder_of, run_of
from scalebook.training.jobs.devices import Allocation, NodeDevices
from scalebook.training.jobs.process import ProcessId

REMOTE: Final = "remote.json"
Ask = Literal["terminate", "kill", "clear", "withdraw"]
"""`withdraw`: a part that has not begun is not to begin any more."""
WANTED_S: Final = 20.0
"""So long somebody counts as wanting the courier."""


@dataclass(frozen=True)
class RemoteState:
    """`remote.json` in a job's folder: what the courier last heard of it.

    `code` is the exit code, or minus the number of the signal that ended it; None while it runs, or nobody knows.
    """

    handle: RayHandle | None = None
    alive: bool = False
    cleared: bool = False
    code: int | None = None
    problem: str = ""
    lost: str = ""
    """Why nothing will be heard of it any more, for people."""
    cpu_s: float = 0.0
    memory_mb: float = 0.0


@dataclass(frozen=True)
class KnownNodes:
    """`machines.json`: those on which jobs can be started now, and what is to be said of the others."""

    courier: ProcessId
    ready: list[NodeDevices] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    """By name, in words."""
    problem: str = ""
    """Why there are none."""


@dataclass(frozen=True)
class JobOrder:
    """`orders/ID.json`: start this job, or part of one, on these devices of a machine."""

    job: str
    machine: str
    cores: list[int]
    gpus: list[str]
    node: int = 0
    """Of this machine, among those of the run."""
    first: str = ""
    """Of a run on several machines, where the machines meet."""
    parts: list[str] = field(default_factory=list)
    others: list[Allocation] = field(default_factory=list)
    """Of the first machine's alone: the names of the other parts, and what the job holds of their machines."""


class ClusterSpool:
    """The files of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.folder = workspace.hidden / "cluster"
        self.orders, self.asks, self.data = (self.folder / name for name in ("orders", "asks", "data"))

    def create(self) -> "ClusterSpool":
        self.workspace.create()
        for folder in (self.folder, self.orders, self.asks, self.data):
            folder.mkdir(mode=0o700, exist_ok=True)
        return self

    @property
    def lock(self) -> Path:
        """Held by the courier."""
        return self.folder / "courier.lock"

    @property
    def log(self) -> Path:
        return self.folder / "courier.log"

    def machines(self) -> KnownNodes | None:
        return records.peek(self.folder / "machines.json", KnownNodes)

    def note(self, machines: KnownNodes) -> None:
        records.save(self.folder / "machines.json", machines)

    def want(self) -> None:
        """Say that somebody wants the courier to stay."""
        (self.folder / "wanted").touch()

    def wanted(self) -> bool:
        try:
            return time.time() - (self.folder / "wanted").stat().st_mtime < WANTED_S
        except OSError:
            return False

    def order(self, order: JobOrder) -> None:
        records.save(self.orders / f"{order.job}.json", order)

    def ordered(self) -> list[JobOrder]:
        orders = (records.peek(self.orders / name, JobOrder) for name in _names(self.orders))
        return [order for order in orders if order is not None]

    def need(self, paths: Iterable[str]) -> None:
        """Have each machine asked whether it has these, which do not travel."""
        for path in paths:
            records.put(self.data / hashlib.sha256(path.encode()).hexdigest(), path.encode())

    def needed(self) -> list[str]:
        """Paths on this machine, of files and folders."""
        return sorted((self.data / name).read_text(encoding="utf-8") for name in _names(self.data))

    def folder_of(self, name: str) -> Path:
        """Of a job, or of part of one."""
        return folder_of(self.workspace.hidden, name)

    def withdraw(self, job: str) -> None:
        """The orders of a job and of its parts."""
        for order in self.ordered():
            if run_of(order.job) == job:
                self.order_done(order.job)

    def order_done(self, job: str) -> None:
        """Of an order that has been followed, or is not wanted any more."""
        (self.orders / f"{job}.json").unlink(missing_ok=True)

    def pending_requests(self) -> list[tuple[str, str]]:
        """Job and what is asked of it, for all that has not been passed on."""
        return [(job, ask) for name in _names(self.asks) for job, _, ask in [name.partition(".")]]

    def passed_on(self, job: str, ask: str) -> None:
        (self.asks / f"{job}.{ask}").unlink(missing_ok=True)


def state_of(folder: Path) -> RemoteState | None:
    """Of a job, by its folder."""
    return records.peek(folder / REMOTE, RemoteState)


def came_to_nothing(folder: Path) -> bool:
    """Of a job or a part: that it was to begin, and does not any more."""
    state = state_of(folder)
    return state is not None and state.handle is None and state.cleared


def tell(folder: Path, state: RemoteState) -> None:
    """OSError where the folder is gone."""
    records.save(folder / REMOTE, state)


def ask(folder: Path, action: Ask) -> None:
    """Leave it for the courier, of a job or a part by its folder; nothing where that is gone."""
    with suppress(OSError):
        (folder.parents[1] / "cluster" / "asks" / f"{folder.name}.{action}").touch()


def _names(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except OSError:
        return []
