"""A run's measurements so far, for callbacks. AsyncPS has them as `figures`; under other strategies the Measure
callback counts."""

from time import perf_counter
from typing import Literal

from typing_extensions import override

from scalebook.training.engine.coordination import measures
from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.buffers import Buffers
from scalebook.training.lightning.package import Trainer


class RunFigures:
    """The measurements; this base class has none, for the time without a run. They can be read at any time while
    workers train; a worker reads those of all workers, and adds only to its own."""

    @property
    def is_simulated(self) -> bool:
        """Whether one process simulates all workers, on a virtual clock."""
        return False

    @property
    def max_updates(self) -> int | None:
        """The budget of updates of all workers together; while it trains, the Trainer's own `max_steps` is another
        number."""
        return None

    def now(self) -> float:
        """Seconds on the run's clock; only differences are meaningful."""
        return perf_counter()

    def counts(self) -> measures.Counts:
        """Updates and samples of all workers together."""
        return measures.Counts(0, 0)

    def living(self) -> list[int]:
        """The workers that have neither died nor left."""
        return []

    def worker_times(self) -> list[measures.WorkerTimes]:
        """Each worker's times."""
        return []

    def staleness(self) -> measures.StalenessHistogram | None:
        """The staleness of every update."""
        return None

    def pushes(self) -> list[measures.PushMeasures]:
        """The outcome of the pushes, by worker and shard."""
        return []

    def timings(self) -> measures.Timings:
        """How long gradients and pushes took."""
        return measures.Timings()

    def moved_bytes(self) -> measures.MovedBytes:
        """Bytes of gradients pushed and of parameters pulled by all workers in this run."""
        times = self.worker_times()
        return measures.MovedBytes(
            float(sum(worker.pushed_bytes for worker in times)), float(sum(worker.pulled_bytes for worker in times))
        )

    def consensus(self) -> measures.Consensus | None:
        """How far peers were apart when their mean was taken last; None without peers."""
        return None

    def buffers_apart(self) -> float | None:
        """How far the workers' buffers are from their mean, as this worker sees them, relative to the mean's norm; None
        if training changes no buffers."""
        return None

    def add_time(self, part: Literal["compute", "data"], seconds: float) -> None:
        """Add to this worker's own time."""

    def add_samples(self, samples: int) -> None:
        """Add to the samples that this worker has computed on."""

    def note_memory(self, size: int) -> None:
        """The most bytes that this worker has held so far, or has allocated on its GPU."""


class MonitorFigures(RunFigures):
    """The measurements in the process that has started the run; also after its end."""

    def __init__(self, figures: worker_end.Figures) -> None:
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
    def counts(self) -> measures.Counts:
        return self._figures.counts()

    @override
    def worker_times(self) -> list[measures.WorkerTimes]:
        return self._figures.worker_times()

    @override
    def staleness(self) -> measures.StalenessHistogram | None:
        return self._figures.staleness()

    @override
    def pushes(self) -> list[measures.PushMeasures]:
        return self._figures.pushes()

    @override
    def timings(self) -> measures.Timings:
        return self._figures.timings()

    @override
    def consensus(self) -> measures.Consensus | None:
        return self._figures.consensus()


class TrainingFigures(MonitorFigures):
    """The measurements in one of the run's workers. `buffers`: set while it trains."""

    def __init__(self, end: worker_end.WorkerEnd) -> None:
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
    """The measurements of an AsyncPS run; None under other strategies, where each worker counts for itself."""
    figures = getattr(trainer.strategy, "figures", None)
    return figures if isinstance(figures, RunFigures) else None
