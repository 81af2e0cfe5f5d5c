"""The seam between jobs and the machines that run them: what any process asks by a job's handle."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Generic, Literal, NamedTuple, TypeVar

from scalebook.training.jobs.devices import NodeDevices

H = TypeVar("H")
Level = Literal["terminate", "kill"]


class JobUsage(NamedTuple):
    """What a job has taken of its machine."""

    cpu_s: float
    """CPU seconds of all its processes so far, those that have ended included."""
    memory_mb: float
    """Memory that it has now; what its processes share is counted once."""


class PartEnd(NamedTuple):
    """A part that has ended, at a unix time, s. `cleared`: nothing of it is left there. `failed`: by its own doing."""

    when: float
    cleared: bool
    failed: bool


class Executor(ABC, Generic[H]):
    """Where jobs run, and how they are reached there: by the handle, of type `H`, that is in a job's `process.json`.

    The folder of a job, here, is the truth about it. Whoever executes it brings there what the job writes, while it
    runs, and all of it before `clear` says so; the file `stop`, by which a job is asked to end, is brought to the job.
    A job belongs to the process that has made `process.json`, of several that try exactly one (`JobFolder.claim`).

    Any process may ask, and any number of them at a time. What one asks about a handle holds for it alone: a pid that
    another process has by now is not the job. Nothing here waits for the job.
    """

    name: ClassVar[str]
    """As handles have it."""

    @abstractmethod
    def machines(self) -> list[NodeDevices]:
        """All devices that jobs may be lent, whoever holds them just now."""

    def need(self, paths: Iterable[str]) -> None:
        """Have each machine asked whether it has these files and folders of this one, which do not travel."""

    def without(self) -> str:
        """Why there is no machine, where there is none, for people."""
        return "waits for a machine; none is there"

    @abstractmethod
    def alive(self, handle: H) -> bool:
        """Whether the job's main process runs."""

    @abstractmethod
    def stop(self, handle: H, level: Level) -> None:
        """End a job that did not end when it was asked to.

        `terminate`: SIGTERM to its main process alone (a whole group under DDP would deadlock). `kill`: SIGKILL to all
        that belongs to it. Harmless when it has ended.
        """

    @abstractmethod
    def clear(self, handle: H) -> bool:
        """Of a job whose main process has ended: end what it left behind, which may have been done by itself.

        True when nothing of it is left, and all that it has written is in its folder here. Call it until then.
        """

    def usage(self, handle: H) -> JobUsage | None:
        """What the job takes; None where it has ended, or an executor does not tell."""
        return None

    def processes(self, handle: H) -> Sequence[int]:
        """The pids that it has on this machine; none where an executor does not tell."""
        return []

    def failure_reason(self, handle: H) -> str:
        """Why a job on several machines that has not begun to train never will; "" where that is not known."""
        return ""

    def ended_parts(self, handle: H) -> Mapping[str, PartEnd]:
        """Of a job on several machines, the parts that have ended, by name."""
        return {}

    def tidy(self, handle: H) -> None:
        """While a job runs: end what parts of it that have ended left behind, and such as never began."""

    @abstractmethod
    def describe(self, handle: H) -> str:
        """Which process that is, for people."""
