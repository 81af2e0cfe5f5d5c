"""The interface between jobs and the machines that run them: what any process can ask about a job by its handle."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Generic, Literal, NamedTuple, TypeVar

from scalebook.training.jobs.devices import NodeDevices

H = TypeVar("H")
Level = Literal["terminate", "kill"]


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
        return "waits for a node; there is none"

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
