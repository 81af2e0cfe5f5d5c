"""Ends a run whose loss is NaN or infinite."""

import math
from time import monotonic
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from typing_extensions import override

from scalebook.training.base import Diverged
from scalebook.training.callbacks.batches import loss_of
from scalebook.training.callbacks.measure import Measure
from scalebook.training.lightning import SkipsEmptyHooks

LOOK_S: Final = 0.5
"""Interval between reads of the flag on a GPU, s; a read waits for the GPU."""

UNLOGGED: Final = "the loss that training_step returned"
"""Its name where the model does not log it."""


class DivergenceGuard(SkipsEmptyHooks, Callback):
    """Raises Diverged when the training loss of any worker becomes NaN or infinite.

    On a CPU it checks after each batch (1 us); on a GPU the check is a few small kernels per step, read every 0.5 s.
    The error has the number of updates in the parameters that gave the loss: for the first such batch, also if it is
    seen later.
    """

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self._updates = 0  # in the parameters of the present batch
        self._first: tuple[Tensor, Tensor] | None = None  # the first loss that is no number, and its updates
        self._next_look = 0.0

    @override
    def on_train_batch_start(self, trainer: Trainer, *args: Any) -> None:
        self._updates = trainer.global_step

    @override
    def on_before_backward(self, trainer: Trainer, *args: Any) -> None:
        self._updates = trainer.global_step  # a strategy may have pulled newer parameters since the batch began

    @override
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *args: Any) -> None:
        loss = loss_of(outputs)
        if loss is None:
            return
        if loss.device.type == "cpu":
            if not math.isfinite(value := loss.item()):
                self._give_up(trainer, value, self._updates)
            return
        self._note(loss)
        if (now := monotonic()) >= self._next_look:
            self._look(trainer, now)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._look(trainer, monotonic())

    def _note(self, loss: Tensor) -> None:
        """Without waiting for the device."""
        loss = loss.detach()
        if self._first is None:
            self._first = loss, torch.full_like(loss, self._updates, dtype=torch.int64)
            return
        before, updates = self._first
        is_new = torch.isfinite(before)
        self._first = torch.where(is_new, loss, before), torch.where(is_new, self._updates, updates)

    def _look(self, trainer: Trainer, now: float) -> None:
        self._next_look = now + LOOK_S
        if self._first is not None and not math.isfinite(value := self._first[0].item()):
            self._give_up(trainer, value, int(self._first[1].item()))

    def _give_up(self, trainer: Trainer, value: float, updates: int) -> None:
        staleness = self.measure.measured.staleness() if self.measure.measured is not None else None
        stale = staleness is not None and staleness.max() > 0
        raise Diverged(_name(trainer), value, updates, stale)


def _name(trainer: Trainer) -> str:
    """The metric under which the model logs its loss: the shortest name of those that are no numbers now."""
    metrics = {name: value for name, value in trainer.callback_metrics.items() if value.numel() == 1}
    bad = [name for name, value in metrics.items() if not math.isfinite(float(value))]
    return min(bad, key=lambda name: ("loss" not in name, len(name), name), default=UNLOGGED)
