"""What the processes of one run have in common, and the part of one worker in it.

Every wait has a deadline. A death is noticed by whoever made the processes.
"""

from collections.abc import Callable

from scalebook.training.ps.clock import Clock, Steps, Wait
from scalebook.training.ps.coordination.admission import mark_dead
from scalebook.training.ps.coordination.measures import Counts, PushMeasures, StalenessHistogram, WorkerTimes
from scalebook.training.ps.coordination.readout import counts, pushes, staleness, worker_times
from scalebook.training.ps.memory.region import ARRIVALS, FINISHED, LOST, RESTING, STARTED, Control, Memory
from scalebook.training.ps.policy.settings import Settings
from scalebook.training.ps.trace import Head, write_head


class Membership:
    """One worker's part in the group. Each counter it writes is its own, so nothing here needs a lock."""

    def __init__(self, control: Control, worker: int, deadline_s: float) -> None:
        self._control, self.worker, self.deadline_s = control, worker, deadline_s

    @property
    def joins_late(self) -> bool:
        """Whether training was under way when this worker came: it was started again."""
        return bool(self._control.head[STARTED])

    def rendezvous(self, name: str) -> Steps[None]:
        """Wait until every living worker has come to as many rendezvous as this one; TimeoutError names who is missing.

        For the time before training only: a worker that computes waits for nobody.
        """
        mine = self._control.counter(self.worker, ARRIVALS) + 1
        self._control.set_counter(self.worker, ARRIVALS, mine)
        self._control.event.wake()
        yield self._wait(lambda: self._late(mine), f"rendezvous {name!r}: workers {{}} did not come")

    def wait_for_others(self) -> Steps[None]:
        """Wait until all other living workers have finished; TimeoutError when nothing happens for the deadline.

        Through `Joined`, which also waits until all is applied that they pushed.
        """
        yield self._wait(self._running, "workers {} neither pushed nor finished")

    def _late(self, mine: int) -> list[int]:
        return [w for w in self._control.living() if self._control.counter(w, ARRIVALS) < mine]

    def _running(self) -> list[int]:
        return [w for w in self._control.training() if w != self.worker]

    def _wait(self, missing: Callable[[], list[int]], message: str) -> Wait:
        def what() -> str:
            return f"worker {self.worker} waited in vain, {message.format(missing())}"

        return Wait(lambda: not missing(), self.deadline_s, what)


class SharedRun:
    """What the processes of one run have in common. Made once, before the fork, by the process that forks."""

    def __init__(self, workers: int, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings or Settings()
        self.settings.check(workers)
        self.control = Control(workers, self.settings, clock)
        self.memory = Memory()
        if self.settings.trace is not None:
            self.settings.trace.mkdir(parents=True, exist_ok=True)

    @property
    def servers(self) -> int:
        """Server processes to start."""
        return self.settings.shards if self.settings.host == "process" else 0

    def member(self, worker: int, deadline_s: float) -> Membership:
        """The membership of one worker; `deadline_s` (seconds) bounds each of its waits, those for locks too."""
        return Membership(self.control, worker, deadline_s)

    def mark_dead(self, worker: int) -> None:
        """A worker has died: nobody waits for it any more. By the monitor, once it is dead."""
        self.control.set_counter(worker, LOST, 1)
        mark_dead(self.control, worker)

    def rejoin(self, worker: int) -> None:
        """A worker has died and will be started again: the others wait for it. By the monitor, instead of `mark_dead`.

        Not after `mark_dead`: who waits for the end of all workers would see it gone in between.
        """
        mark_dead(self.control, worker)
        for counter in (FINISHED, RESTING, ARRIVALS, LOST):
            self.control.set_counter(worker, counter, 0)

    def close(self) -> None:
        """Give up the memory's handle; in the process that made it, when the run has ended. Completes the trace."""
        self.memory.close()
        if self.settings.trace is not None and self.control.head[STARTED]:
            self.write_trace_head()

    def write_trace_head(self) -> None:
        """Write `trace.json`: the settings of the run, and the versions before its first and after its last update."""
        assert self.settings.trace is not None
        used = [counters for counters in self.control.sections if counters.used[0]]
        head = Head(
            workers=self.control.workers,
            shards=self.settings.shards,
            most=self.settings.most(self.control.workers),
            rule=repr(self.settings.rule),
            damping=repr(self.settings.damping),
            first=[counters.admission[1] for counters in used],
            last=[[shard.newest[0] >> 17 for shard in counters.shards] for counters in used],
        )
        write_head(self.settings.trace, head)

    # --- measures: readable at any time, by every process of the run ----------------------------------------------

    def counts(self) -> Counts:
        """Updates of all optimizers, and samples."""
        return counts(self.control)

    def worker_times(self) -> list[WorkerTimes]:
        """Each worker's seconds, and what it achieved."""
        return worker_times(self.control)

    def staleness(self) -> StalenessHistogram:
        """Staleness by worker, in versions, as the first shard of each optimizer has met it."""
        return staleness(self.control)

    def pushes(self) -> list[PushMeasures]:
        """What became of the pushes, by worker and shard."""
        return pushes(self.control)
