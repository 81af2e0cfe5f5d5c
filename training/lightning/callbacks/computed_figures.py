"""Figures made from counts and times: rates over a window, shares of time, staleness, drops, memory, bytes."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

import torch

from scalebook.training.engine.coordination import measures
from scalebook.training.engine.coordination.measures import (
    Counts,
    MovedBytes,
    PushMeasures,
    StalenessHistogram,
    WorkerTimes,
)
from scalebook.training.tracking import names

MB: Final = 1e6
KB: Final = 1024
STEPS: Final = 20
"""Of each worker, on average, in a window on a virtual clock: with 3 a rate would be 33 % off, by where it ends."""
MEMORY_SHARE: Final = 0.005
"""Of the time, at most, that goes into reading the memory: the kernel walks all pages, 14 ms for 400 MB."""


class Window:
    """Updates and samples a second since the last call, of the run and of each worker."""

    def __init__(self, fewest: int = 0) -> None:
        """`fewest`: updates of each worker, on average, before a window ends."""
        self.fewest = fewest
        self._time = 0.0
        self._counts = Counts(0, 0)
        self._workers: Mapping[int, Counts] = {}

    def open_window(self, time: float, counts: Counts, workers: Mapping[int, Counts]) -> None:
        """Start a window. `time` in s on any clock that `rates` uses too."""
        self._time, self._counts, self._workers = time, counts, workers

    def rates(self, time: float, counts: Counts, workers: Mapping[int, Counts]) -> dict[str, float]:
        """Rates since the window began, which ends here; empty where no time, or too few updates, have passed."""
        passed = time - self._time
        after = sum(worker.updates for worker in workers.values()) or counts.updates
        before = sum(worker.updates for worker in self._workers.values()) or self._counts.updates
        if passed <= 0 or after - before < self.fewest * max(1, len(workers)):
            return {}
        rates = {
            names.UPDATES_PER_SECOND: (counts.updates - self._counts.updates) / passed,
            names.SAMPLES_PER_SECOND: (counts.samples - self._counts.samples) / passed,
        }
        if len(workers) > 1:
            for worker, now in workers.items():
                then = self._workers.get(worker, Counts(0, 0))
                updates = names.per_worker(names.UPDATES_PER_SECOND, worker)
                samples = names.per_worker(names.SAMPLES_PER_SECOND, worker)
                rates[updates] = (now.updates - then.updates) / passed
                rates[samples] = (now.samples - then.samples) / passed
        self.open_window(time, counts, workers)
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
    """Mean and 95 % quantile over all workers' updates; empty for synchronous runs."""
    if histogram is None or not histogram.total:
        return {}
    return {
        names.STALENESS_MEAN: histogram.mean(),
        names.STALENESS_P95: float(histogram.quantile(0.95)),
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
        figures = shares([worker_times]) | pushes([row for row in rows if row.worker == worker])
        if worker_times.memory_bytes:
            figures[names.PEAK_MEMORY_MB] = worker_times.memory_bytes / MB
        if histogram is not None:
            mean = measures.mean_staleness(histogram.counts[worker : worker + 1].tolist())
            figures |= {} if math.isnan(mean) else {names.STALENESS_MEAN: mean}
        by_name |= {names.per_worker(name, worker): value for name, value in figures.items()}
    return by_name


def moved(moved_bytes: MovedBytes, updates: int) -> dict[str, float]:
    """Bytes for an update, by direction, over all of the run that this process has seen."""
    pushed, pulled = moved_bytes
    return {names.PUSHED_PER_UPDATE: pushed / max(1, updates), names.PULLED_PER_UPDATE: pulled / max(1, updates)}


def gradients(times: Sequence[WorkerTimes], updates: int) -> dict[str, float]:
    """What all workers have computed for an update, where gradients are averaged, summed or dropped, or where workers
    make steps of their own; empty where nobody counts them, and where each is an update, as under `async`, but for one
    of each worker that is under way."""
    computed = sum(time.gradients for time in times)
    return {names.GRADIENTS_PER_UPDATE: computed / max(1, updates)} if computed - updates > len(times) else {}


class PeakMemory:
    """The most that this process has held: allocated on its GPU, or its proportional set size (PSS), in which n
    processes have 1/n of a page that they share, as on the page of a run. The PSS is a sample, not the kernel's account
    of a peak, which would have every shared page in full (RSS)."""

    def __init__(self) -> None:
        self._peak = 0
        self._next = 0.0

    def peak(self, device: torch.device, at_once: bool = False) -> int:
        """Bytes so far; `at_once` though it was looked at just now."""
        now = perf_counter()
        if device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(device))
        if at_once or now >= self._next:
            self._peak = max(self._peak, pss_bytes())
            self._next = now + (perf_counter() - now) / MEMORY_SHARE
        return self._peak


def pss_bytes() -> int:
    """Of this process, now."""
    match = re.search(r"^Pss:\s+(\d+) kB$", Path("/proc/self/smaps_rollup").read_text(encoding="ascii"), re.MULTILINE)
    assert match is not None, "Linux 4.14 or newer"
    return int(match[1]) * KB
