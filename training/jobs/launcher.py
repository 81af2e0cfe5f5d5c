"""The seam between jobs and the machines that run them: what the supervisor starts jobs with."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from scalebook.training.jobs.devices import Allocation
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.leases import Lease

CLAIMED_ELSEWHERE = 75
"""Exit code of a process that found its job owned by another one already."""
GPUS_TAKEN = 69
"""Exit code of one that found its GPUs held by another job; its own waits again."""


@dataclass(frozen=True)
class ProcessEnded:
    """A process that was started for a job has ended.

    `code` is its exit code, or minus the number of the signal that ended it; `problem` says, for people, why it could
    not begin.
    """

    job: str
    code: int
    problem: str = ""


@dataclass(frozen=True)
class LauncherLost:
    """What starts jobs has died. Jobs that run go on; those that were asked for and have not begun never will.

    `ready`: it had been able to start jobs. `problem` is for people.
    """

    ready: bool
    problem: str


Event = ProcessEnded | LauncherLost


class Launcher(ABC):
    """Starts jobs and tells how they end. One process owns it, calls it from one thread, and must `close` it."""

    @property
    @abstractmethod
    def state(self) -> Literal["none", "loading", "ready"]:
        """Whether jobs can be started; `none` until `prepare`, and again when it is lost."""

    @abstractmethod
    def prepare(self, fresh: bool) -> bool:
        """Get ready to start jobs, without waiting for it; True when it is.

        `fresh`: with our package as it is now; what was made ready with an older state of its files is replaced.
        """

    @abstractmethod
    def start(self, job: JobFolder, lease: Lease) -> bool:
        """Have the job run on these devices, and on no others; False where that cannot be asked for just now.

        Returns at once. The job has begun when its folder names its handle. Only when `prepare` said True.
        """

    def join(self, job: JobFolder, lent: Allocation) -> None:
        """Have another machine take part, with these devices, in a job that runs. Where there are several alone."""
        raise NotImplementedError

    @abstractmethod
    def events(self, wait_s: float) -> list[Event]:
        """What has happened since the last call; waits at most so long for something, s.

        Every process that this launcher has started is told of once when it has ended, those too that were started
        before a loss.
        """

    @abstractmethod
    def close(self) -> None:
        """Start nothing any more, until `prepare`; jobs go on."""
