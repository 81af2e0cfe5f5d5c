"""What the processes of one run share, and one worker's membership in it.

Every wait has a deadline. The process that started the others notices deaths.
"""

import math
from collections.abc import Callable

import torch

from scalebook.training.engine.coordination.admission import mark_dead
from scalebook.training.engine.coordination.measures import (
    Consensus,
    Counts,
    PushMeasures,
    Seconds,
    StalenessHistogram,
    Timings,
    WorkerTimes,
)
from scalebook.training.engine.memory.region import (
    AGE,
    APPLIED,
    ARRIVALS,
    BINS,
    COMMUNICATE,
    COMPUTE,
    DATA,
    DRIFT,
    DRIFTS,
    DROPPED,
    DUPLICATES,
    FINISHED,
    FIRST_BIN,
    GAUGE,
    GRADIENTS,
    LOST,
    MEMORY,
    METER,
    PULLED,
    PUSHED,
    RESTING,
    ROW,
    SAMPLES,
    STARTED,
    WAIT,
    Control,
    Memory,
    PartitionCounters,
)
from scalebook.training.engine.rules.duration_summary import together
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.trace import Head, write_head
from scalebook.training.engine.worker_clock import Clock, Wait, Waits


class Membership:
    """One worker's membership. It writes only its own counters, so nothing here needs a lock."""

    def __init__(self, control: Control, worker: int, deadline_s: float) -> None:
        self._control, self.worker, self.deadline_s = control, worker, deadline_s

    @property
    def joins_late(self) -> bool:
        """Whether training was under way when this worker joined: it was started again."""
        return bool(self._control.head[STARTED])

    def rendezvous(self, name: str) -> Waits[None]:
        """Wait until every living worker has come to as many rendezvous as this one; TimeoutError names who is missing.

        Only before training: a worker that computes waits for nobody.
        """
        mine = self._control.counter(self.worker, ARRIVALS) + 1
        self._control.set_counter(self.worker, ARRIVALS, mine)
        self._control.event.wake()
        yield self._wait(lambda: self._late(mine), f"rendezvous {name!r}: workers {{}} did not arrive")

    def wait_for_others(self) -> Waits[None]:
        """Wait until all other living workers have finished; TimeoutError when nothing happens for the deadline.

        Called through `Joined`, which also waits until everything they pushed has been applied.
        """
        yield self._wait(self._running, "workers {} neither pushed nor finished")

    def _late(self, mine: int) -> list[int]:
        return [w for w in self._control.living() if self._control.counter(w, ARRIVALS) < mine]

    def _running(self) -> list[int]:
        return [w for w in self._control.training() if w != self.worker]

    def _wait(self, missing: Callable[[], list[int]], message: str) -> Wait:
        def what() -> str:
            return f"worker {self.worker} gave up waiting: {message.format(missing())}"

        return Wait(lambda: not missing(), self.deadline_s, what)


class SharedRun:
    """What the processes of one run share. Made once, before the fork, by the process that forks."""

    def __init__(self, workers: int, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings or Settings()
        self.settings.check(workers)
        self.control = Control(workers, self.settings, clock)
        self.memory, self.row_memory = Memory(), Memory()
        if self.settings.trace is not None:
            self.settings.trace.mkdir(parents=True, exist_ok=True)

    @property
    def servers(self) -> int:
        """How many server processes to start."""
        return self.settings.shards if self.settings.has_servers else 0

    def member(self, worker: int, deadline_s: float) -> Membership:
        """The membership of one worker; `deadline_s` bounds each of its waits, for locks too."""
        return Membership(self.control, worker, deadline_s)

    def mark_dead(self, worker: int) -> None:
        """Note that a worker has died, so that nobody waits for it. Called by the monitor once it is dead."""
        self.control.set_counter(worker, LOST, 1)
        mark_dead(self.control, worker)

    def rejoin(self, worker: int) -> None:
        """Note that a dead worker will be started again, so that the others wait for it. Called by the monitor instead
        of `mark_dead`.

        Never after `mark_dead`: a process that waits for the end of all workers would see it gone in between.
        """
        mark_dead(self.control, worker)
        for counter in (FINISHED, RESTING, ARRIVALS, LOST):
            self.control.set_counter(worker, counter, 0)

    def close(self) -> None:
        """Close the memory's descriptor and complete the trace; in the process that made the run, at its end."""
        self.memory.close()
        self.row_memory.close()
        if self.settings.trace is not None and self.control.head[STARTED]:
            self.write_trace_head()

    def write_trace_head(self) -> None:
        """Write `trace.json`: the settings of the run, and the versions before its first and after its last update."""
        assert self.settings.trace is not None
        used = _used(self.control)
        first = [counters.admission[1] for counters in used]
        last = [[shard.newest[0] >> 17 for shard in counters.shards] for counters in used]
        head = Head.of(self.settings, self.control.workers, first, last)
        write_head(self.settings.trace, head)

    # --- measures: readable at any time, by every process of the run ----------------------------------------------

    def counts(self) -> Counts:
        """Updates that every shard has, over all optimizers, and samples of all workers."""
        updates = sum(min(shard.newest[0] >> 17 for shard in counters.shards) for counters in _used(self.control))
        return Counts(updates, sum(self.control.column(SAMPLES)))

    def seconds(self) -> Seconds:
        """Seconds of all workers together so far."""
        seconds = self.control.seconds
        return Seconds(*(sum(seconds[what::ROW].tolist()) for what in (COMPUTE, WAIT, COMMUNICATE)))

    def worker_times(self) -> list[WorkerTimes]:
        """Every worker's seconds and counts now."""
        times = []
        for worker in range(self.control.workers):
            seconds, offset = self.control.seconds[worker * ROW : worker * ROW + ROW], worker * METER
            used = _used(self.control)
            meters = [shard.meters for counters in used for shard in counters.shards]
            times.append(
                WorkerTimes(
                    compute=seconds[COMPUTE],
                    wait=seconds[WAIT],
                    communicate=seconds[COMMUNICATE],
                    data=seconds[DATA],
                    updates=sum(counters.shards[0].meters[offset + APPLIED] for counters in used),
                    samples=self.control.counter(worker, SAMPLES),
                    pushed_bytes=sum(meter[offset + PUSHED] for meter in meters),
                    pulled_bytes=sum(meter[offset + PULLED] for meter in meters),
                    gradients=self.control.counter(worker, GRADIENTS),
                    memory_bytes=int(seconds[MEMORY]),
                )
            )
        return times

    def staleness(self) -> StalenessHistogram:
        """Staleness by worker so far, at the first shard of each optimizer."""
        total = torch.zeros(self.control.workers, BINS, dtype=torch.int64)
        for counters in _used(self.control):
            flat = torch.tensor(counters.shards[0].meters.tolist(), dtype=torch.int64)
            total += flat.view(self.control.workers, METER)[:, FIRST_BIN:]
        return StalenessHistogram(total)

    def consensus(self) -> Consensus | None:
        """Of the first optimizer's peers; None before their mean was taken, and without peers."""
        peers = self.control.partition_counters[0].peers
        return Consensus(*peers.spread[:3]) if peers is not None and peers.spread[2] else None

    def timings(self) -> Timings:
        """Measured durations; empty for a virtual run."""
        served = [shard.served.took() for counters in _used(self.control) for shard in counters.shards]
        return Timings([own.took() for own in self.control.own], together([one for one in served if one is not None]))

    def pushes(self) -> list[PushMeasures]:
        """A row for each worker at each shard, ordered by worker, optimizer, shard."""
        return [
            _row(counters, worker, number, shard)
            for worker in range(self.control.workers)
            for number, counters in enumerate(_used(self.control))
            for shard in range(len(counters.shards))
        ]


def _row(counters: PartitionCounters, worker: int, number: int, shard: int) -> PushMeasures:
    meters, gauges = counters.shards[shard].meters, counters.shards[shard].gauges
    count, offset = meters[worker * METER + APPLIED], worker * GAUGE
    norms = gauges[offset + DRIFTS]
    return PushMeasures(
        worker,
        number,
        shard,
        count,
        meters[worker * METER + DROPPED],
        meters[worker * METER + DUPLICATES],
        gauges[offset + AGE] / count if count else math.nan,
        gauges[offset + DRIFT] / norms if norms else math.nan,
        meters[worker * METER + PUSHED],
        meters[worker * METER + PULLED],
    )


def _used(control: Control) -> list[PartitionCounters]:
    return [counters for counters in control.partition_counters if counters.used[0]]
