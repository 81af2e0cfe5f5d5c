"""What worker 0's profiler has found, for the Trainer that was asked: its own has seen no training."""

from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.profilers import Profiler, PyTorchProfiler, SimpleProfiler


def found_by(trainer: Trainer) -> dict[str, Any]:
    """In worker 0, after its work. Every worker has written its files already, named by its rank."""
    profiler = _of(trainer)
    if isinstance(profiler, PyTorchProfiler):
        return {"function_events": profiler.function_events}
    if isinstance(profiler, SimpleProfiler):
        return {"recorded_durations": profiler.recorded_durations}
    return {}


def bring_back(trainer: Trainer, state: dict[str, Any]) -> None:
    """Where the profiler is asked for it after the fit."""
    vars(_of(trainer)).update(state)


def _of(trainer: Trainer) -> Profiler:
    profiler: Profiler = trainer.profiler  # type: ignore[attr-defined]  # made by its constructor, untyped
    return profiler
