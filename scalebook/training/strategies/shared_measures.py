"""What a run in shared memory has measured so far (scalebook.training.callbacks.measured.Measured)."""

from time import perf_counter
from typing import Literal

from scalebook.training.ps.coordination.measures import (
    Counts,
    MovedBytes,
    PushMeasures,
    StalenessHistogram,
    Timings,
    WorkerTimes,
)
from scalebook.training.ps.worker.end import Figures, WorkerEnd
from scalebook.training.strategies.buffers import Buffers


class SharedMeasures:
    """Mixed into a strategy: `_figures` of the run while there is one, `_end` in a worker.

    Every worker sees everybody's figures, and adds to its own alone.
    """

    _figures: Figures | None
    _end: WorkerEnd | None
    _buffers: Buffers | None

    @property
    def is_simulated(self) -> bool:
        """Whether one process plays all workers, on a virtual clock."""
        return self._figures is not None and self._figures.settings.clock is not None

    def now(self) -> float:
        """Seconds on the run's clock."""
        return perf_counter() if self._end is None else self._end.now()

    def counts(self) -> Counts:
        """Updates and samples of all workers together."""
        return Counts(0, 0) if self._figures is None else self._figures.counts()

    def living(self) -> list[int]:
        """The workers that have not died, or left."""
        return [] if self._end is None else self._end.living()

    def worker_times(self) -> list[WorkerTimes]:
        """Each worker's seconds."""
        return [] if self._figures is None else self._figures.worker_times()

    def staleness(self) -> StalenessHistogram | None:
        """The staleness of every update."""
        return None if self._figures is None else self._figures.staleness()

    def pushes(self) -> list[PushMeasures]:
        """What became of the pushes, by worker and shard."""
        return [] if self._figures is None else self._figures.pushes()

    def timings(self) -> Timings:
        """What gradients and pushes took."""
        return Timings() if self._figures is None else self._figures.timings()

    def moved_bytes(self) -> MovedBytes:
        """Bytes of gradients handed in and of parameters taken, by all workers, in this run."""
        times = self.worker_times()
        return MovedBytes(float(sum(one.pushed_bytes for one in times)), float(sum(one.pulled_bytes for one in times)))

    def buffers_apart(self) -> float | None:
        """How far the workers' buffers are from their mean, as this worker sees them now, in parts of the mean's norm;
        None where training changes none."""
        return None if self._buffers is None else self._buffers.apart(self.living())

    @property
    def max_updates(self) -> int | None:
        """The budget of updates, all workers together. The Trainer's own `max_steps` is no measure while it trains."""
        return None if self._figures is None else self._figures.settings.max_updates

    def add_time(self, part: Literal["compute", "data"], seconds: float) -> None:
        """Add to this worker's own time."""
        if self._end is not None:
            self._end.add_time(part, seconds)

    def add_samples(self, samples: int) -> None:
        """Add to the samples that this worker has computed on."""
        if self._end is not None:
            self._end.add_samples(samples)

    def note_memory(self, size: int) -> None:
        """The most bytes that this worker has held so far, or has allocated on its GPU."""
        if self._end is not None:
            self._end.note_memory(size)

    def _samples(self) -> int:
        """Samples that all workers together have computed on: what a checkpoint says of them."""
        return self.counts().samples

    def _restore_samples(self, samples: int) -> None:
        """Count those of before a checkpoint too."""
        self.add_samples(samples)
