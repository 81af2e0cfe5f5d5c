"""Writes a trial's learning curve to a file (`curve.jsonl` of its job), by which running trials are compared."""

import json
import math
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.lightning.callbacks.measure import Measure
from scalebook.training.tracking.logger import Axes


class CurveWriter(Callback):
    """Worker 0 appends a line after each validation; without validations, after each epoch, with training metrics.

    `{"updates": 90, "samples": 2880, "seconds": 0.41, "bytes": 0.0, "metrics": {"val/loss": 1.2}}`. It comes after
    `measure` in the Trainer's list, which fixes the axes of a validation and gathers its metrics.
    """

    def __init__(self, job: JobFolder, measure: Measure) -> None:
        self.job, self.measure = job, measure
        self._at: Axes | None = None

    @override
    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._at = self.measure.axes()

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking and self._at is not None:
            self._append(trainer, self._at, self.measure.summary.last)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._at is None:
            self._append(trainer, self.measure.axes(), self.measure.latest)

    def _append(self, trainer: Trainer, axes: Axes, metrics: dict[str, float]) -> None:
        if not trainer.is_global_zero or not metrics:
            return
        point: dict[str, Any] = {**_known(axes), "metrics": metrics}
        with self.job.curve.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(point)}\n")


def _known(axes: Axes) -> dict[str, float]:
    """JSON has no NaN."""
    return {name: value for name, value in axes._asdict().items() if not math.isnan(value)}
