"""What the processes of one fit share, made before the fork."""

from dataclasses import dataclass, field

from scalebook.training.ps import SharedRun
from scalebook.training.ps.memory.region import ARRIVALS, STARTED, Memory
from scalebook.training.strategies.meetings import Meetings
from scalebook.training.strategies.set_aside import SetAside
from scalebook.training.strategies.sharing import SharedData
from scalebook.training.strategies.signals import Signals


@dataclass
class Shared:
    """Parameters, data, counters, running statistics. Anonymous memory: gone with the last process."""

    run: SharedRun
    data: SharedData
    meetings: Meetings
    board: Signals = field(default_factory=Signals)
    statistics: Memory = field(default_factory=Memory)
    aside: SetAside = field(default_factory=SetAside)  # the monitor's parameters

    def is_over(self) -> bool:
        """Whether nobody is to train any more: asked to stop, or the budget of updates is used up."""
        most = self.run.settings.max_updates
        return self.board.stop or (most is not None and self.run.counts().updates >= most)

    def await_workers(self, meetings: int, deadline_s: float) -> None:
        """For a server, which takes part in no rendezvous: wait until the workers have been to so many, as before the
        model's `setup`, which may need what worker 0 has downloaded.
        """
        control = self.run.control

        def have_come() -> bool:
            late = [worker for worker in control.living() if control.counter(worker, ARRIVALS) < meetings]
            return not late or bool(control.head[STARTED]) or not control.training()

        control.event.wait(have_come, deadline_s, lambda: f"a server waits for rendezvous {meetings} of the workers")

    def close(self) -> None:
        """Give up this process's handles; in the monitor, when the run has ended, which has its parameters again."""
        self.aside.bring_back()
        self.run.close()
        self.statistics.close()
        self.meetings.close()
