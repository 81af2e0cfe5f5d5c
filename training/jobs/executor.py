"""Where jobs run: what any process can ask about a job by its handle, this machine's executor, and which there are. The
one for clusters is loaded only if a job, or the workspace, names it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeVar

import psutil

from scalebook.training.base import SETTINGS, ConfigError, ProcessId, Workspace, trust
from scalebook.training.jobs.begin_request import RayHandle
from scalebook.training.jobs.devices import NodeDevices, this_machine

H = TypeVar("H")
Level = Literal["terminate", "kill"]

CLAIMED_ELSEWHERE = 75
"""Exit code of a process whose job is already owned by another process."""
GPUS_TAKEN = 69
"""Exit code of a process whose GPUs another job holds; its job waits again."""


class JobUsage(NamedTuple):
    """The resources that a job has used."""

    cpu_s: float
    """CPU seconds of all its processes so far, those that have ended included."""
    memory_mb: float
    """Memory that it holds now; what its processes share is counted once."""


class PartEnd(NamedTuple):
    """The end of a part. `when`: unix time, s. `cleared`: nothing of it is left on its node. `failed`: it failed by
    itself."""

    when: float
    cleared: bool
    failed: bool


class Executor(ABC, Generic[H]):
    """Where jobs run, and how they are reached: by the handle, of type `H`, in a job's `process.json`.

    The job's folder on this machine is the only record of it. The executor copies into it what the job writes, while it
    runs, and all of it before `clear` returns True; it passes the file `stop`, which asks a job to end, on to the job.
    A job belongs to the process that has created its `process.json`: of several that try, exactly one
    (`JobFolder.claim`).

    Any number of processes may ask at the same time. An answer is about exactly this job: if another process has got
    its pid by now, that one is not the job. Nothing here waits for the job.
    """

    name: ClassVar[str]
    """The executor's name, as handles have it."""

    @abstractmethod
    def machines(self) -> list[NodeDevices]:
        """All devices that jobs can get, also those that are in use."""

    def need(self, paths: Iterable[str]) -> None:
        """Have each node checked for these files and folders, which are not copied to it."""

    def without(self) -> str:
        """Why there is no node, as a text for people."""
        return "waits for a node, but there is none"

    @abstractmethod
    def alive(self, handle: H) -> bool:
        """Whether the job's main process runs."""

    @abstractmethod
    def stop(self, handle: H, level: Level) -> None:
        """End a job that did not stop when asked.

        `terminate`: SIGTERM to its main process alone (to the whole group, DDP would deadlock). `kill`: SIGKILL to all
        its processes. Does nothing if the job has ended.
        """

    @abstractmethod
    def clear(self, handle: H) -> bool:
        """End what a job has left behind when its main process has ended.

        True when none of its processes is left, and all that it has written is in its folder on this machine. Call it
        until then.
        """

    def usage(self, handle: H) -> JobUsage | None:
        """The resources that the job uses; None if it has ended, or if the executor does not know."""
        return None

    def processes(self, handle: H) -> Sequence[int]:
        """The job's pids on this machine; none if the executor does not know them."""
        return []

    def failure_reason(self, handle: H) -> str:
        """Why a job on several nodes that has not started to train never will; "" while it still may."""
        return ""

    def ended_parts(self, handle: H) -> Mapping[str, PartEnd]:
        """For a job on several nodes: the parts that have ended, by name."""
        return {}

    def tidy(self, handle: H) -> None:
        """While a job runs, clear up its parts that have ended or never started."""

    @abstractmethod
    def describe(self, handle: H) -> str:
        """A description of the job's process, for people."""


@dataclass(frozen=True)
class LocalHandle:
    """A job as a process of this machine."""

    process: ProcessId
    leads_session: bool = True
    """False for a job in the foreground: it shares its session with the user's shell, which is not part of the job."""
    executor: str = "local"
    folder: str = field(default="", compare=False)
    """The job's folder, from which the handle was read, whatever the record says; "" if it was not read from a
    folder."""

    @classmethod
    def of_this_process(cls, *, leads_session: bool = True) -> "LocalHandle":
        """The handle of this process."""
        return cls(ProcessId.of(), leads_session)


class LocalExecutor(Executor[LocalHandle]):
    """A job is a process, its session, and those of its descendants that have left the session.

    A handle read from a folder may name any process. It counts only if a process of the job has the folder's log, or
    the record itself, open for writing (`writes_to`): its main process, or, after that has ended, one of its session.
    """

    name: ClassVar[str] = "local"
    WRITTEN: ClassVar = ("log.txt", "process.json")

    def __init__(self) -> None:
        self._family: dict[LocalHandle, list[ProcessId]] = {}
        """Of jobs that were killed here: all their processes but the main one, as they were found then."""
        self._ours: set[tuple[LocalHandle, str]] = set()
        """Handles that have been found to mean a job, each with its folder."""

    def machines(self) -> list[NodeDevices]:
        return [this_machine()]

    def alive(self, handle: LocalHandle) -> bool:
        return handle.process.alive() and self._is_ours(handle)

    def stop(self, handle: LocalHandle, level: Level) -> None:
        if not self._is_ours(handle):
            return
        if level == "terminate":
            handle.process.send(SIGTERM)
            return
        self._family[handle] = remaining = self._left(handle)
        for process in (*remaining, handle.process):
            process.send(SIGKILL)

    def clear(self, handle: LocalHandle) -> bool:
        remaining = self._left(handle)
        for process in remaining:
            process.send(SIGKILL)
        if not remaining:
            self._family.pop(handle, None)
        return not remaining

    def usage(self, handle: LocalHandle) -> JobUsage | None:
        """The resources by `/proc`: memory is the proportional set size (PSS), in which n processes count 1/n of a
        shared page."""
        cpu_s = memory = 0.0
        if not self.alive(handle):
            return None
        for process in (handle.process, *self._left(handle)):
            with suppress(psutil.Error):  # ended meanwhile
                member = psutil.Process(process.pid)
                cpu_s += sum(member.cpu_times()[:4])  # its own, and of its children that have ended
                memory += member.memory_full_info().pss
        return JobUsage(cpu_s, memory / 1e6)

    def processes(self, handle: LocalHandle) -> list[int]:
        if not self.alive(handle):
            return []
        return [process.pid for process in (handle.process, *self._left(handle))]

    def describe(self, handle: LocalHandle) -> str:
        stranger = handle.process.alive() and not self._is_ours(handle)
        return f"pid {handle.process.pid}{', which is not a process of this run' if stranger else ''}"

    def _left(self, handle: LocalHandle) -> list[ProcessId]:
        """What the job consists of besides its main process."""
        if not self._is_ours(handle):
            return []
        family = handle.process.descendants()
        members = handle.process.session() if handle.leads_session else []
        remembered = [process for process in self._family.get(handle, ()) if process.alive()]
        return [process for process in dict.fromkeys([*family, *members, *remembered]) if process != handle.process]

    def _is_ours(self, handle: LocalHandle) -> bool:
        """Whether the handle means a job; once it has, it does for ever: no other process is that one."""
        key = handle, handle.folder
        if handle.folder and key not in self._ours:
            files = [Path(handle.folder) / name for name in self.WRITTEN]
            if not handle.process.writes_to(files):
                members = handle.process.session() if handle.leads_session else []
                if not any(member.writes_to(files) for member in members):
                    return False
            self._ours.add(key)
        return True


LOCAL: Final = LocalExecutor()

RAY: Final = "scalebook.training.cluster.ray_executor"
"""It lies above this package, so it is named and not imported."""


@cache
def _of_any_cluster() -> Executor[RayHandle]:
    executor: Executor[RayHandle] = import_module(RAY).RayExecutor()
    return executor


EXECUTORS: Final[dict[str, Callable[[], Executor[Any]]]] = {LOCAL.name: lambda: LOCAL, "ray": _of_any_cluster}
"""Executors by the name in their handles."""

Handle = LocalHandle | RayHandle
"""A handle of any of them."""


def executor_of(handle: Handle) -> Executor[Any]:
    """The executor that runs the job. A record that names an unknown one counts as broken and is never read as a
    handle."""
    return EXECUTORS[handle.executor]()


def configured_executor(workspace: Workspace) -> Executor[Any]:
    """The executor for jobs that start now. ConfigError if it cannot be used: first because of the folder's owner,
    since until the folder is trusted it does not matter whether its cluster can be reached."""
    try:
        settings = workspace.settings
    except ConfigError:  # whoever uses the settings says what is wrong with them
        return LOCAL
    key = f"{SETTINGS}: cluster.address"
    if settings.clustered and not trust.trusted(workspace):
        fix = f"If the folder is yours, add {trust.OPTION} to the command once."
        raise ConfigError(key, "sends jobs to other nodes, but you do not trust this folder", fix)
    if not settings.cluster:
        return LOCAL
    executor: Executor[RayHandle] = import_module(RAY).of_workspace(workspace, key)
    return executor
