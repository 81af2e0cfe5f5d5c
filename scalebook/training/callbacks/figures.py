"""Figures made from counts and times: rates over a window, shares of time, staleness, drops, memory, bytes."""

import math
import resource
from collections.abc import Mapping, Sequence
from typing import Final

import torch

from scalebook.training.ps.coordination import measures
from scalebook.training.ps.coordination.measures import (
    Counts,
    MovedBytes,
    PushMeasures,
    StalenessHistogram,
    WorkerTimes,
)
from scalebook.training.tracking import names

MB: Final = 1e6
RSS_UNIT: Final = 1024  # bytes in a unit of ru_maxrss


class Window:
    """Updates and samples a second since the last call, of the run and of each worker."""

    def __init__(self) -> None:
        self._time = 0.0
        self._counts = Counts(0, 0)
        self._workers: Mapping[int, Counts] = {}

    def begin(self, time: float, counts: Counts, workers: Mapping[int, Counts]) -> None:
        """Start a window. `time` in s on any clock that `rates` uses too."""
        self._time, self._counts, self._workers = time, counts, workers

    def rates(self, time: float, counts: Counts, workers: Mapping[int, Counts]) -> dict[str, float]:
        """Rates since the window began, which ends here; empty where no time has passed."""
        passed = time - self._time
        if passed <= 0:
            return {}
        rates = {
            names.UPDATES_PER_SECOND: (counts.updates - self._counts.updates) / passed,
            names.SAMPLES_PER_SECOND: (counts.samples - self._counts.samples) / passed,
        }
        if len(workers) > 1:
            for worker, now in workers.items():
                before = self._workers.get(worker, Counts(0, 0))
                updates = names.per_worker(names.UPDATES_PER_SECOND, worker)
                samples = names.per_worker(names.SAMPLES_PER_SECOND, worker)
                rates[updates] = (now.updates - before.updates) / passed
                rates[samples] = (now.samples - before.samples) / passed
        self.begin(time, counts, workers)
        return rates


def shares(times: Sequence[WorkerTimes]) -> dict[str, float]:
    """Which part of the workers' time went where; they add up to 1. Empty before the first batch."""
    totals = {
        names.COMPUTE_SHARE: sum(time.compute for time in times),
        names.WAIT_SHARE: sum(time.wait for time in times),
        names.COMMUNICATE_SHARE: sum(time.communicate for time in times),
        names.DATA_SHARE: sum(time.data for time in times),
    }
    return measures.shares(totals)


def staleness(histogram: StalenessHistogram | None) -> dict[str, float]:
    """Mean, median, 95 % quantile and maximum over all workers' updates; empty for synchronous runs."""
    if histogram is None or not histogram.total:
        return {}
    return {
        names.STALENESS_MEAN: histogram.mean(),
        names.STALENESS_P50: float(histogram.quantile(0.5)),
        names.STALENESS_P95: float(histogram.quantile(0.95)),
        names.STALENESS_MAX: float(histogram.max()),
    }


def pushes(rows: Sequence[PushMeasures]) -> dict[str, float]:
    """Drops and duplicates in all, mean age in s and mean drift over what was applied; empty for synchronous runs."""
    if not rows:
        return {}
    drift = measures.whole_drift(((row.section, row.shard), row.drift, row.applied) for row in rows)
    ages = measures.weighted_mean([(row.age_s, row.applied) for row in rows])
    return {
        names.DROPPED: float(sum(row.dropped for row in rows)),
        names.DUPLICATES: float(sum(row.duplicates for row in rows)),
        **({} if math.isnan(ages) else {names.STALENESS_SECONDS: ages}),
        **({} if math.isnan(drift) else {names.DRIFT: drift}),
    }


def by_worker(
    times: Sequence[WorkerTimes], histogram: StalenessHistogram | None, rows: Sequence[PushMeasures]
) -> dict[str, float]:
    """Shares, mean staleness, drops, ages and memory of each worker; empty where only one is known."""
    by_name: dict[str, float] = {}
    if len(times) < 2:
        return by_name
    for worker, worker_times in enumerate(times):
        mine = shares([worker_times]) | pushes([row for row in rows if row.worker == worker])
        if worker_times.memory_bytes:
            mine[names.PEAK_MEMORY_MB] = worker_times.memory_bytes / MB
        if histogram is not None:
            own = measures.mean_staleness(histogram.counts[worker : worker + 1].tolist())
            mine |= {} if math.isnan(own) else {names.STALENESS_MEAN: own}
        by_name |= {names.per_worker(name, worker): value for name, value in mine.items()}
    return by_name


def moved(moved_bytes: MovedBytes, updates: int, seconds: float) -> dict[str, float]:
    """Bytes for an update and in a second, by direction, over all of the run that this process has seen."""
    pushed, pulled = moved_bytes
    by_name = {
        names.BYTES_PER_UPDATE: (pushed + pulled) / max(1, updates),
        names.PUSHED_PER_UPDATE: pushed / max(1, updates),
        names.PULLED_PER_UPDATE: pulled / max(1, updates),
    }
    if seconds > 0:
        by_name |= {names.PUSHED_PER_SECOND: pushed / seconds, names.PULLED_PER_SECOND: pulled / seconds}
    return by_name


def gradients(times: Sequence[WorkerTimes], updates: int) -> dict[str, float]:
    """What all workers have computed for an update: 1 under `async`, more where gradients are averaged, summed or
    dropped, or where workers make steps of their own; empty where nobody counts them."""
    computed = sum(time.gradients for time in times)
    return {names.GRADIENTS_PER_UPDATE: computed / max(1, updates)} if computed else {}


def memory_bytes(device: torch.device) -> int:
    """The most that this worker has held: allocated on its GPU, or resident in memory (shared pages included)."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
