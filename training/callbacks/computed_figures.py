"""Metrics computed from counts and times: rates over a window, shares of time, staleness, drops, memory, bytes."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

import torch

from scalebook.training.engine.coordination import measures
from scalebook.training.tracking import names

MB: Final = 1e6
KB: Final = 1024
STEPS: Final = 20
"""The fewest updates per worker, on average, in a window on a simulated clock: with 3, a rate could be off by 33 %."""
MEMORY_SHARE: Final = 0.005
"""The largest share of the time spent on reading the memory: the kernel walks all pages, 14 ms for 400 MB."""


class Window:
    """Updates and samples per second since the last call, of the run and of each worker."""

    def __init__(self, fewest: int = 0) -> None:
        """`fewest`: the fewest updates per worker, on average, in a window."""
        self.fewest = fewest
        self._time = 0.0
        self._counts = measures.Counts(0, 0)
        self._workers: Mapping[int, measures.Counts] = {}

    def open_window(self, time: float, counts: measures.Counts, workers: Mapping[int, measures.Counts]) -> None:
        """Start a window. `time`: s, on the clock that `rates` uses."""
        self._time, self._counts, self._workers = time, counts, workers

    def rates(self, time: float, counts: measures.Counts, workers: Mapping[int, measures.Counts]) -> dict[str, float]:
        """Rates over the window, which ends here; empty if no time, or too few updates, have passed."""
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
                then = self._workers.get(worker, measures.Counts(0, 0))
                updates = names.per_worker(names.UPDATES_PER_SECOND, worker)
                samples = names.per_worker(names.SAMPLES_PER_SECOND, worker)
                rates[updates] = (now.updates - then.updates) / passed
                rates[samples] = (now.samples - then.samples) / passed
        self.open_window(time, counts, workers)
        return rates


def shares(times: Sequence[measures.WorkerTimes]) -> dict[str, float]:
    """The shares of the workers' time by activity; they add up to 1. Empty before the first batch."""
    totals = {
        names.COMPUTE_SHARE: sum(time.compute for time in times),
        names.WAIT_SHARE: sum(time.wait for time in times),
        names.COMMUNICATE_SHARE: sum(time.communicate for time in times),
        names.DATA_SHARE: sum(time.data for time in times),
    }
    return measures.shares(totals)


def busiest(times: Sequence[measures.WorkerTimes], updates: int) -> dict[str, float]:
    """Bytes that the busiest peer has sent for an update."""
    return {names.BUSIEST_PEER: max(worker.pushed_bytes for worker in times) / updates} if times and updates else {}


def staleness(histogram: measures.StalenessHistogram | None) -> dict[str, float]:
    """Mean and 95 % quantile of the staleness of all updates; empty for synchronous runs."""
    if histogram is None or not histogram.total:
        return {}
    return {
        names.STALENESS_MEAN: histogram.mean(),
        names.STALENESS_P95: float(histogram.quantile(0.95)),
    }


def pushes(rows: Sequence[measures.PushMeasures]) -> dict[str, float]:
    """The number of drops and duplicates, and of applied pushes the mean age, s, and drift; empty for synchronous
    runs."""
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
    times: Sequence[measures.WorkerTimes],
    histogram: measures.StalenessHistogram | None,
    rows: Sequence[measures.PushMeasures],
) -> dict[str, float]:
    """Shares, mean staleness, drops, ages and memory of each worker; empty if only one is known."""
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


def moved(moved_bytes: measures.MovedBytes, updates: int) -> dict[str, float]:
    """Bytes per update, by direction, since this process started."""
    pushed, pulled = moved_bytes
    return {names.PUSHED_PER_UPDATE: pushed / max(1, updates), names.PULLED_PER_UPDATE: pulled / max(1, updates)}


def gradients(times: Sequence[measures.WorkerTimes], updates: int) -> dict[str, float]:
    """Gradients computed per update, if gradients are averaged, summed or dropped, or with `local`; empty if they are
    not counted, or each gradient is an update, as under `async`."""
    computed = sum(time.gradients for time in times)
    return {names.GRADIENTS_PER_UPDATE: computed / max(1, updates)} if computed - updates > len(times) else {}


class PeakMemory:
    """The peak memory of this process: allocated on its GPU, or the proportional set size (PSS), which counts 1/n of a
    page that n processes share. The PSS is sampled: the kernel's own peak (RSS) would count every shared page in
    full."""

    def __init__(self) -> None:
        self._peak = 0
        self._next = 0.0

    def peak(self, device: torch.device, at_once: bool = False) -> int:
        """The peak so far, bytes; `at_once`: sample now, even if the last sample is recent."""
        now = perf_counter()
        if device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(device))
        if at_once or now >= self._next:
            self._peak = max(self._peak, pss_bytes())
            self._next = now + (perf_counter() - now) / MEMORY_SHARE
        return self._peak


def pss_bytes() -> int:
    """The present PSS of this process, bytes."""
    match = re.search(r"^Pss:\s+(\d+) kB$", Path("/proc/self/smaps_rollup").read_text(encoding="ascii"), re.MULTILINE)
    assert match is not None, "Linux 4.14 or newer"
    return int(match[1]) * KB
