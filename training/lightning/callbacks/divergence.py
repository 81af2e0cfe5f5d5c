"""Ends a run whose loss is NaN or infinite."""

import math
from time import monotonic
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from typing_extensions import override

from scalebook.training.base.failures import Diverged
from scalebook.training.lightning.callbacks.batches import loss_of
from scalebook.training.lightning.callbacks.measure import Measure
from scalebook.training.tracking.names import TRAIN_LOSS

LOOK_S: Final = 0.5
"""Interval between reads of the flag on a GPU, s; a read waits for the GPU."""


class DivergenceGuard(Callback):
    """Raises Diverged when the training loss of any worker becomes NaN or infinite.

    On a CPU it checks after each batch (1 us); on a GPU the check is one small kernel per step, read every 0.5 s.
    """

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self._bad: Tensor | None = None
        self._next_look = 0.0

    @override
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *args: Any) -> None:
        loss = loss_of(outputs)
        if loss is None:
            return
        if loss.device.type == "cpu":
            if not math.isfinite(value := loss.item()):
                self._give_up(value)
            return
        wrong = torch.where(torch.isfinite(loss), torch.zeros_like(loss), loss)
        self._bad = wrong if self._bad is None else self._bad + wrong
        if (now := monotonic()) >= self._next_look:
            self._look(now)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._bad is not None:
            self._look(monotonic())

    def _look(self, now: float) -> None:
        assert self._bad is not None
        self._next_look = now + LOOK_S
        if not math.isfinite(value := self._bad.item()):
            self._give_up(value)

    def _give_up(self, value: float) -> None:
        staleness = self.measure.measured.staleness() if self.measure.measured is not None else None
        stale = staleness is not None and staleness.max() > 0
        raise Diverged(TRAIN_LOSS, value, self.measure.counts().updates, stale)
