"""The interface with which the supervisor starts jobs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from scalebook.training.jobs.devices import Allocation
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.leases import Lease

CLAIMED_ELSEWHERE = 75
"""Exit code of a process whose job is already owned by another process."""
GPUS_TAKEN = 69
"""Exit code of a process whose GPUs another job holds; its job waits again."""


@dataclass(frozen=True)
class ProcessEnded:
    """The process started for a job has ended.

    `code` is its exit code, or minus the number of the signal that ended it; `problem` says why it could not start, for
    people.
    """

    job: str
    code: int
    problem: str = ""


@dataclass(frozen=True)
class LauncherLost:
    """What starts jobs has died. Running jobs go on; jobs that were ordered and have not started never will.

    `ready`: whether it could start jobs before. `problem` is for people.
    """

    ready: bool
    problem: str


Event = ProcessEnded | LauncherLost


class Launcher(ABC):
    """Starts jobs and reports how they end. One process owns it, calls it from one thread, and must `close` it."""

    @property
    @abstractmethod
    def state(self) -> Literal["none", "loading", "ready"]:
        """Whether jobs can be started; `none` before `prepare`, and again after a loss."""

    @abstractmethod
    def prepare(self, fresh: bool) -> bool:
        """Prepare to start jobs, without waiting; True when ready.

        `fresh`: with Scalebook's sources as they are now; a process prepared with older ones is replaced.
        """

    @abstractmethod
    def start(self, job: JobFolder, lease: Lease) -> bool:
        """Start the job on these devices, and on no others; False if that is not possible at present.

        Returns at once. The job has started when its folder names its handle. Call it only after `prepare` returned
        True.
        """

    def join(self, job: JobFolder, lent: Allocation) -> None:
        """Add another node, with these devices, to a running job. Only for executors with several nodes."""
        raise NotImplementedError

    @abstractmethod
    def events(self, wait_s: float) -> list[Event]:
        """The events since the last call; waits at most `wait_s` for one.

        The end of every process that this launcher has started is reported once, also of those started before a loss.
        """

    @abstractmethod
    def close(self) -> None:
        """Start no more jobs until `prepare`; running jobs go on."""
