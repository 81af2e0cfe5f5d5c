"""What a run has measured so far, as callbacks ask for it. AsyncPS offers it as `figures`; under other strategies the
Measure callback counts by itself.
"""

from time import perf_counter
from typing import Literal

from typing_extensions import override

from scalebook.training.engine.coordination.measures import (
    Counts,
    MovedBytes,
    PushMeasures,
    StalenessHistogram,
    Timings,
    WorkerTimes,
)
from scalebook.training.engine.worker.worker_end import Figures, WorkerEnd
from scalebook.training.lightning.buffers import Buffers
from scalebook.training.lightning.package import Trainer


class RunFigures:
    """As long as there is no run: nothing. Readable at any time while the workers go on; a worker sees everybody's
    figures, and adds to its own alone."""

    @property
    def is_simulated(self) -> bool:
        """Whether one process plays all workers, on a virtual clock."""
        return False

    @property
    def max_updates(self) -> int | None:
        """The budget of updates, all workers together. The Trainer's own `max_steps` is no measure while it trains."""
        return None

    def now(self) -> float:
        """Seconds on the run's clock; only differences mean something."""
        return perf_counter()

    def counts(self) -> Counts:
        """Updates and samples of all workers together."""
        return Counts(0, 0)

    def living(self) -> list[int]:
        """The workers that have not died, or left."""
        return []

    def worker_times(self) -> list[WorkerTimes]:
        """Each worker's seconds."""
        return []

    def staleness(self) -> StalenessHistogram | None:
        """The staleness of every update."""
        return None

    def pushes(self) -> list[PushMeasures]:
        """What became of the pushes, by worker and shard."""
        return []

    def timings(self) -> Timings:
        """What gradients and pushes took."""
        return Timings()

    def moved_bytes(self) -> MovedBytes:
        """Bytes of gradients handed in and of parameters taken, by all workers, in this run."""
        times = self.worker_times()
        return MovedBytes(
            float(sum(worker.pushed_bytes for worker in times)), float(sum(worker.pulled_bytes for worker in times))
        )

    def buffers_apart(self) -> float | None:
        """How far the workers' buffers are from their mean, as this worker sees them now, in parts of the mean's norm;
        None where training changes none."""
        return None

    def add_time(self, part: Literal["compute", "data"], seconds: float) -> None:
        """Add to this worker's own time."""

    def add_samples(self, samples: int) -> None:
        """Add to the samples that this worker has computed on."""

    def note_memory(self, size: int) -> None:
        """The most bytes that this worker has held so far, or has allocated on its GPU."""


class MonitorFigures(RunFigures):
    """Of a run, for the process that has started it; also after its end."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    @property
    @override
    def is_simulated(self) -> bool:
        return self._figures.settings.clock is not None

    @property
    @override
    def max_updates(self) -> int | None:
        return self._figures.settings.max_updates

    @override
    def counts(self) -> Counts:
        return self._figures.counts()

    @override
    def worker_times(self) -> list[WorkerTimes]:
        return self._figures.worker_times()

    @override
    def staleness(self) -> StalenessHistogram | None:
        return self._figures.staleness()

    @override
    def pushes(self) -> list[PushMeasures]:
        return self._figures.pushes()

    @override
    def timings(self) -> Timings:
        return self._figures.timings()


class TrainingFigures(MonitorFigures):
    """Of a run, in one of its workers. `buffers`: while it trains."""

    def __init__(self, end: WorkerEnd) -> None:
        super().__init__(end.figures)
        self._end = end
        self.buffers: Buffers | None = None

    @override
    def now(self) -> float:
        return self._end.now()

    @override
    def living(self) -> list[int]:
        return self._end.living()

    @override
    def buffers_apart(self) -> float | None:
        return None if self.buffers is None else self.buffers.apart(self.living())

    @override
    def add_time(self, part: Literal["compute", "data"], seconds: float) -> None:
        self._end.add_time(part, seconds)

    @override
    def add_samples(self, samples: int) -> None:
        self._end.add_samples(samples)

    @override
    def note_memory(self, size: int) -> None:
        self._end.note_memory(size)


def figures_of(trainer: Trainer) -> RunFigures | None:
    """Of a run whose workers do not wait for each other; None under other strategies, where each counts for itself."""
    figures = getattr(trainer.strategy, "figures", None)
    return figures if isinstance(figures, RunFigures) else None
