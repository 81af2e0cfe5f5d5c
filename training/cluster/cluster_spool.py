"""The spool between processes that want something of jobs on other nodes, and the cluster daemon, which alone reaches
these.

It is a folder of files, `.scalebook/cluster/`: processes write their requests there, and the daemon writes what it
knows there, or into the job's folder (`remote.json`). So any process that can read the workspace can ask, without Ray.
"""

import hashlib
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from scalebook.training.base import ProcessId, Workspace
from scalebook.training.base.files import records
from scalebook.training.jobs import Allocation, NodeDevices, begin_request

REMOTE: Final = "remote.json"
Ask = Literal["terminate", "kill", "clear", "withdraw"]
"""What can be asked of a job. `withdraw`: a part that has not started shall not start."""
WANTED_S: Final = 20.0
"""How long a request to stay keeps the daemon, s."""


@dataclass(frozen=True)
class RemoteState:
    """`remote.json` in a job's folder: the last news of a job on another node.

    `code` is the exit code, or minus the number of the signal that ended it; None while it runs, or if it is not known.
    """

    handle: begin_request.RayHandle | None = None
    alive: bool = False
    cleared: bool = False
    code: int | None = None
    problem: str = ""
    lost: str = ""
    """Why there will be no more news of it, for people."""
    cpu_s: float = 0.0
    memory_mb: float = 0.0


@dataclass(frozen=True)
class KnownNodes:
    """`machines.json`: the nodes on which jobs can start now, and the state of the others."""

    daemon: ProcessId
    ready: list[NodeDevices] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    """The state of the other nodes, by name, in words."""
    problem: str = ""
    """Why there are no nodes."""


@dataclass(frozen=True)
class JobOrder:
    """`orders/ID.json`: an order to start a job, or a part of one, on these devices of a node."""

    job: str
    machine: str
    cores: list[int]
    gpus: list[str]
    node: int = 0
    """The number of this node in the run."""
    first: str = ""
    """For a run on several nodes: the first node, where they meet."""
    parts: list[str] = field(default_factory=list)
    others: list[Allocation] = field(default_factory=list)
    """In the first node's order alone: the names of the other parts, and what the job holds on their nodes."""


class ClusterSpool:
    """The spool of one workspace."""

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
        """The lock that the cluster daemon holds."""
        return self.folder / "courier.lock"

    @property
    def log(self) -> Path:
        return self.folder / "courier.log"

    def machines(self) -> KnownNodes | None:
        return records.peek(self.folder / "machines.json", KnownNodes)

    def note(self, machines: KnownNodes) -> None:
        records.save(self.folder / "machines.json", machines)

    def want(self) -> None:
        """Ask the cluster daemon to stay."""
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
        """Have each node checked for these paths, which are not copied to it."""
        for path in paths:
            records.put(self.data / hashlib.sha256(path.encode()).hexdigest(), path.encode())

    def needed(self) -> list[str]:
        """The paths that nodes are checked for."""
        return sorted((self.data / name).read_text(encoding="utf-8") for name in _names(self.data))

    def folder_of(self, name: str) -> Path:
        """The folder of a job or a part."""
        return begin_request.folder_of(self.workspace.hidden, name)

    def withdraw(self, job: str) -> None:
        """Remove the orders of a job and of its parts."""
        for order in self.ordered():
            if begin_request.run_of(order.job) == job:
                self.order_done(order.job)

    def order_done(self, job: str) -> None:
        """Remove an order that has been carried out or is no longer wanted."""
        (self.orders / f"{job}.json").unlink(missing_ok=True)

    def pending_requests(self) -> list[tuple[str, str]]:
        """(job, request) for all requests that have not been passed on."""
        return [(job, ask) for name in _names(self.asks) for job, _, ask in [name.partition(".")]]

    def passed_on(self, job: str, ask: str) -> None:
        (self.asks / f"{job}.{ask}").unlink(missing_ok=True)


def state_of(folder: Path) -> RemoteState | None:
    """The last news of the job in this folder; None without any."""
    return records.peek(folder / REMOTE, RemoteState)


def has_failed_to_start(folder: Path) -> bool:
    """Whether this start of a job or a part has been given up."""
    state = state_of(folder)
    return state is not None and state.handle is None and state.cleared


def write_state(folder: Path, state: RemoteState) -> None:
    """Write the state of a job. OSError if its folder is gone."""
    records.save(folder / REMOTE, state)


def ask(folder: Path, action: Ask) -> None:
    """Leave a request about a job or a part, by its folder, for the cluster daemon. Does nothing if the folder is
    gone."""
    with suppress(OSError):
        (folder.parents[1] / "cluster" / "asks" / f"{folder.name}.{action}").touch()


def _names(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except OSError:
        return []
