"""The totals of worker 0's training bars, which Lightning asks for once an epoch and of a process that trains alone."""

import math
from typing import Any

from typing_extensions import override

from scalebook.training.strategies.lightning import Callback, LightningModule, TQDMProgressBar, Trainer


def bar_totals(trainer: Trainer, gradients: int, workers: int) -> list[Callback]:
    """The callbacks to put before a Trainer's progress bars: none where it has no bar, or one worker, or is not worker
    0.

    `gradients`: of single workers, that all of them compute for each update.
    """
    bars = [callback for callback in trainer.callbacks if isinstance(callback, TQDMProgressBar)]  # type: ignore[attr-defined]
    return [BarTotals(bars, gradients / workers)] if bars and workers > 1 and trainer.is_global_zero else []


class BarTotals(Callback):
    """Sets the total of the training bars at each batch: how many batches worker 0 will have depends on the others'
    speed.

    With `max_steps`, which counts the updates of all workers, it is this worker's share of what is left of them,
    `batches` for each update. Stands before the bars: a bar shows a batch that is not due at its refresh rate only if
    that is the total.
    """

    def __init__(self, bars: list[TQDMProgressBar], batches: float) -> None:
        self._bars, self._batches = bars, batches

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._tell(trainer, batch_idx, least=batch_idx + 1)

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._tell(trainer, batch_idx + 1, least=batch_idx + 1)

    def _tell(self, trainer: Trainer, done: int, least: int) -> None:
        total = trainer.num_training_batches
        if trainer.max_steps >= 0:
            left = max(0, trainer.max_steps - int(trainer.global_step)) * trainer.accumulate_grad_batches
            total = min(total, max(least, done + math.ceil(left * self._batches)))
        for bar in self._bars:
            bar.train_progress_bar.total = None if math.isinf(total) else int(total)
