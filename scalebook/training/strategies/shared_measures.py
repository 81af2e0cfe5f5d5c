"""What a run in shared memory has measured so far (scalebook.training.callbacks.measured.Measured)."""

from typing import Final, Literal

from scalebook.training.ps import Counts, PushMeasures, SharedRun, StalenessHistogram, WorkerTimes
from scalebook.training.ps.memory.region import COMPUTE, DATA, ROW, SAMPLES

PARTS: Final = {"compute": COMPUTE, "data": DATA}


class SharedMeasures:
    """Mixed into a strategy: `_run` while there is one, `_worker` the number of the worker that asks.

    Every worker sees everybody's figures, and adds to its own row alone.
    """

    _run: SharedRun | None
    _worker: int

    def counts(self) -> Counts:
        """Updates and samples of all workers together."""
        return Counts(0, 0) if self._run is None else self._run.counts()

    def worker_times(self) -> list[WorkerTimes]:
        """Each worker's seconds."""
        return [] if self._run is None else self._run.worker_times()

    def staleness(self) -> StalenessHistogram | None:
        """The staleness of every update."""
        return None if self._run is None else self._run.staleness()

    def pushes(self) -> list[PushMeasures]:
        """What became of the pushes, by worker and shard."""
        return [] if self._run is None else self._run.pushes()

    def moved_bytes(self) -> float:
        """Bytes of gradients handed in and of parameters taken, by all workers, in this run."""
        return float(sum(one.pushed_bytes + one.pulled_bytes for one in self.worker_times()))

    @property
    def max_updates(self) -> int | None:
        """The budget of updates, all workers together. The Trainer's own `max_steps` is no measure while it trains."""
        return None if self._run is None else self._run.settings.max_updates

    def add_time(self, part: Literal["compute", "data"], seconds: float) -> None:
        """Add to this worker's own time."""
        if self._run is not None:
            self._run.control.seconds[self._worker * ROW + PARTS[part]] += seconds

    def add_samples(self, samples: int) -> None:
        """Add to the samples that this worker has computed on."""
        if self._run is not None:
            self._run.control.counters[self._worker * ROW + SAMPLES] += samples
