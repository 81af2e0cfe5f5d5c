"""Figures made from counts and times: rates over a window, shares of time, staleness, memory, bytes."""

import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import torch
from lightning.pytorch import Trainer

from training.ps.measures import Counts, StalenessHistogram, WorkerTimes
from training.tracking import names

MB: Final = 1e6
RSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024  # bytes in a unit of ru_maxrss


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
        found = {
            names.UPDATES_PER_SECOND: (counts.updates - self._counts.updates) / passed,
            names.SAMPLES_PER_SECOND: (counts.samples - self._counts.samples) / passed,
        }
        if len(workers) > 1:
            for worker, now in workers.items():
                before = self._workers.get(worker, Counts(0, 0))
                updates = names.per_worker(names.UPDATES_PER_SECOND, worker)
                samples = names.per_worker(names.SAMPLES_PER_SECOND, worker)
                found[updates] = (now.updates - before.updates) / passed
                found[samples] = (now.samples - before.samples) / passed
        self.begin(time, counts, workers)
        return found


def shares(times: Sequence[WorkerTimes]) -> dict[str, float]:
    """Which part of the workers' time went where; they add up to 1. Empty before the first batch."""
    totals = {
        names.COMPUTE_SHARE: sum(one.compute for one in times),
        names.WAIT_SHARE: sum(one.wait for one in times),
        names.COMMUNICATE_SHARE: sum(one.communicate for one in times),
        names.DATA_SHARE: sum(one.data for one in times),
    }
    whole = sum(totals.values())
    return {name: seconds / whole for name, seconds in totals.items()} if whole > 0 else {}


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


def memory_mb(device: torch.device) -> float:
    """The most that this worker has held: allocated on its GPU, or resident in memory (shared pages included)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT / MB


def moved_bytes(trainer: Trainer, pushed_and_pulled: bool) -> float:
    """Bytes of gradients and parameters that all workers together move for one update.

    One process: none. Parameter server: a gradient there, the parameters back. DDP: each of n workers sends 2 (n-1)/n
    of its gradients in a ring (Patarasu and Yuan 2009), which is 2 (n-1) gradients in all.
    """
    size = sum(p.numel() * p.element_size() for p in trainer.lightning_module.parameters() if p.requires_grad)
    if pushed_and_pulled:
        return 2.0 * size
    return 2.0 * (trainer.world_size - 1) * size
