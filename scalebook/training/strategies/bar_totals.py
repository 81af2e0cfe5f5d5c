"""The totals of worker 0's training bars, which Lightning asks for once an epoch and of a process that trains alone."""

import math
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import TQDMProgressBar
from typing_extensions import override


def bar_totals(trainer: Trainer, gradients: int, workers: int) -> list[Callback]:
    """What goes before the bars of a Trainer that has some. `gradients`: of all workers, for each update."""
    bars = [callback for callback in trainer.callbacks if isinstance(callback, TQDMProgressBar)]  # type: ignore[attr-defined]
    return [BarTotals(bars, gradients / workers)] if bars and workers > 1 and trainer.is_global_zero else []


class BarTotals(Callback):
    """Tells the bars anew with each batch: how many this worker will have depends on how fast the others are.

    Of `max_steps`, which all workers make together, it is this worker's share of what is left; 0 once they are made.
    `batches`: of one worker, for each update. It stands before the bars, which show a batch that does not come at their
    refresh rate only if it is the total.
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
