"""The seam between jobs and the machines that run them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar

from scalebook.training.jobs.devices import Machine
from scalebook.training.jobs.process import Children
from scalebook.training.workspace import Workspace

if TYPE_CHECKING:
    from scalebook.training.jobs.folder import JobFolder
    from scalebook.training.jobs.schedule import Lease

H = TypeVar("H")
Level = Literal["terminate", "kill"]

CLAIMED_ELSEWHERE = 75
"""Exit code of a process that found its job owned by another one already."""


@dataclass(frozen=True)
class Ended:
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


Event = Ended | LauncherLost


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
    def machines(self) -> list[Machine]:
        """All devices that jobs may be lent, whoever holds them just now."""

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
        """Of a job whose main process has ended: end what it left behind.

        True when nothing of it is left, and all that it has written is in its folder here. Call it until then.
        """

    @abstractmethod
    def shown(self, handle: H) -> str:
        """Which process that is, for people."""

    @abstractmethod
    def launcher(
        self, workspace: Workspace, children: Children, runner: str | None, preload: Sequence[str] | None
    ) -> "Launcher":
        """The end that starts jobs, for the supervisor of the workspace.

        `runner` is the `module:function` that runs a job's folder and returns an exit code, `preload` the modules that
        are worth importing beforehand; None for those of every day.
        """


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
    def start(self, job: "JobFolder", lease: "Lease") -> bool:
        """Have the job run on these devices, and on no others; False where that cannot be asked for just now.

        Returns at once. The job has begun when its folder names its handle. Only when `prepare` said True.
        """

    @abstractmethod
    def events(self, wait_s: float) -> list[Event]:
        """What has happened since the last call; waits at most so long for something, s.

        Every process that this launcher has started is told of once when it has ended, those too that were started
        before a loss.
        """

    @abstractmethod
    def close(self) -> None:
        """Start nothing any more, until `prepare`; jobs go on."""
