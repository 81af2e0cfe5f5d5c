"""Worker 0's profile, handed to the profiler of the Trainer that `fit` was called on, which has seen no training."""

from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.profilers import Profiler, PyTorchProfiler, SimpleProfiler


def found_by(trainer: Trainer) -> dict[str, Any]:
    """The attributes with the profile, in worker 0 after its work. Profilers of workers write their files themselves,
    by rank."""
    profiler = _of(trainer)
    if isinstance(profiler, PyTorchProfiler):
        return {"function_events": profiler.function_events}
    if isinstance(profiler, SimpleProfiler):
        return {"recorded_durations": profiler.recorded_durations}
    return {}


def bring_back(trainer: Trainer, state: dict[str, Any]) -> None:
    """Set these attributes on the profiler of the Trainer that `fit` was called on."""
    vars(_of(trainer)).update(state)


def _of(trainer: Trainer) -> Profiler:
    profiler: Profiler = trainer.profiler  # type: ignore[attr-defined]  # made by its constructor, untyped
    return profiler
