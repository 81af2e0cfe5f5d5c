"""What the counters of a run say, as plain values; readable by any of its processes at any time."""

import math

import torch

from scalebook.training.ps.coordination.measures import Counts, PushMeasures, StalenessHistogram, WorkerTimes
from scalebook.training.ps.memory.region import (
    AGE,
    APPLIED,
    BINS,
    COMMUNICATE,
    COMPUTE,
    DATA,
    DRIFT,
    DRIFTS,
    DROPPED,
    DUPLICATES,
    FIRST_BIN,
    GAUGE,
    METER,
    PULLED,
    PUSHED,
    ROW,
    SAMPLES,
    WAIT,
    Control,
    SectionCounters,
)


def counts(control: Control) -> Counts:
    """Updates that every shard has, over all optimizers; samples of all workers."""
    updates = sum(min(shard.newest[0] >> 17 for shard in counters.shards) for counters in _used(control))
    return Counts(updates, sum(control.column(SAMPLES)))


def worker_times(control: Control) -> list[WorkerTimes]:
    """Every worker's seconds and counts as they are now."""
    times = []
    for worker in range(control.workers):
        seconds = control.seconds[worker * ROW : worker * ROW + ROW]
        applied = sum(counters.shards[0].meters[worker * METER + APPLIED] for counters in _used(control))
        times.append(
            WorkerTimes(
                compute=seconds[COMPUTE],
                wait=seconds[WAIT],
                communicate=seconds[COMMUNICATE],
                data=seconds[DATA],
                updates=applied,
                samples=control.counter(worker, SAMPLES),
                pushed_bytes=control.counter(worker, PUSHED),
                pulled_bytes=control.counter(worker, PULLED),
            )
        )
    return times


def staleness(control: Control) -> StalenessHistogram:
    """Staleness by worker as it is now, as the first shard of each optimizer has met it."""
    total = torch.zeros(control.workers, BINS, dtype=torch.int64)
    for counters in _used(control):
        flat = torch.tensor(counters.shards[0].meters.tolist(), dtype=torch.int64)
        total += flat.view(control.workers, METER)[:, FIRST_BIN:]
    return StalenessHistogram(total)


def pushes(control: Control) -> list[PushMeasures]:
    """A row for each worker at each shard, by worker, section, shard."""
    return [
        _row(counters, worker, section, shard)
        for worker in range(control.workers)
        for section, counters in enumerate(_used(control))
        for shard in range(len(counters.shards))
    ]


def _row(counters: SectionCounters, worker: int, section: int, shard: int) -> PushMeasures:
    meters, gauges = counters.shards[shard].meters, counters.shards[shard].gauges
    count, at = meters[worker * METER + APPLIED], worker * GAUGE
    norms = gauges[at + DRIFTS]
    return PushMeasures(
        worker,
        section,
        shard,
        count,
        meters[worker * METER + DROPPED],
        meters[worker * METER + DUPLICATES],
        gauges[at + AGE] / count if count else math.nan,
        gauges[at + DRIFT] / norms if norms else math.nan,
    )


def _used(control: Control) -> list[SectionCounters]:
    return [counters for counters in control.sections if counters.used[0]]
