"""What AsyncPS offers as `figures` to those who measure it. Other strategies are counted by the Measure callback."""

from typing import Literal, Protocol, runtime_checkable

from lightning.pytorch import Trainer

from scalebook.training.ps.coordination.measures import (
    Counts,
    MovedBytes,
    PushMeasures,
    StalenessHistogram,
    Timings,
    WorkerTimes,
)


@runtime_checkable
class Measured(Protocol):
    """Run-wide figures, readable at any time from worker 0 while the others go on."""

    @property
    def is_simulated(self) -> bool:
        """Whether `now`, and all other seconds, are of a virtual clock."""
        ...

    @property
    def max_updates(self) -> int | None:
        """The budget of updates, all workers together; None where the Trainer's `max_steps` says it."""
        ...

    def now(self) -> float:
        """Seconds on the run's clock; only differences mean something."""
        ...

    def counts(self) -> Counts: ...

    def living(self) -> list[int]:
        """The workers that are there."""
        ...

    def worker_times(self) -> list[WorkerTimes]: ...

    def staleness(self) -> StalenessHistogram | None: ...

    def pushes(self) -> list[PushMeasures]: ...

    def timings(self) -> Timings:
        """Of real workers that push and pull."""
        ...

    def moved_bytes(self) -> MovedBytes:
        """In this run so far."""
        ...

    def buffers_apart(self) -> float | None:
        """How far the workers' buffers are from their mean, as worker 0 sees them now, in parts of the mean's norm."""
        ...

    def add_time(self, part: Literal["compute", "data"], seconds: float) -> None: ...

    def add_samples(self, samples: int) -> None: ...

    def note_memory(self, size: int) -> None:
        """The most bytes that this worker has held so far, or has allocated on its GPU."""
        ...


def figures_of(trainer: Trainer) -> Measured | None:
    """Of a run whose workers do not wait for each other; None under other strategies, where each counts for itself."""
    figures = getattr(trainer.strategy, "figures", None)
    return figures if isinstance(figures, Measured) else None
