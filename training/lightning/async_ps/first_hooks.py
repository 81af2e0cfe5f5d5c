"""Callbacks of the strategy that run before all others: Lightning calls a strategy's own hooks last."""

import math
import time
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from scalebook.training.lightning.async_ps.worker_session import WorkerSession
from scalebook.training.lightning.package import Callback, LightningModule, ModelCheckpoint, TQDMProgressBar, Trainer
from scalebook.training.lightning.worker_role import ends_here


def bar_totals(trainer: Trainer, gradients: int, workers: int) -> list[Callback]:
    """The callbacks to put before a Trainer's progress bars; none without a bar, with one worker, or in any worker but
    0.

    `gradients`: how many gradients all workers compute for each update.
    """
    bars = [callback for callback in trainer.callbacks if isinstance(callback, TQDMProgressBar)]  # type: ignore[attr-defined]
    return [BarTotals(bars, gradients / workers)] if bars and workers > 1 and trainer.is_global_zero else []


class BarTotals(Callback):
    """Sets the total of the training progress bars at each batch: how many batches worker 0 gets depends on the others'
    speed.

    With `max_steps`, which counts all workers' updates, the total is this worker's share of the rest, `batches` for
    each update. It comes before the bars: between refreshes a bar shows a batch only if it is the last of the total.
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
            remaining = max(0, trainer.max_steps - int(trainer.global_step)) * trainer.accumulate_grad_batches
            total = min(total, max(least, done + math.ceil(remaining * self._batches)))
        for bar in self._bars:
            bar.train_progress_bar.total = None if math.isinf(total) else int(total)


def stand_first(trainer: Trainer, session: WorkerSession) -> None:
    """Put the strategy's own callbacks before all others, and remove those of an earlier fit."""
    totals = bar_totals(trainer, session.gradients_of_an_update, session.processes)
    own_callbacks: list[Callback] = [FirstCallback(session), *totals]
    kinds = {type(callback) for callback in own_callbacks}
    other_callbacks = [callback for callback in trainer.callbacks if type(callback) not in kinds]  # type: ignore[attr-defined]
    trainer.callbacks = [*own_callbacks, *other_callbacks]  # type: ignore[attr-defined]  # made by Lightning's callback connector


class FirstCallback(Callback):
    """The first callback of a worker's Trainer; it keeps nothing in checkpoints. Later hooks of callbacks and models
    may read or swap weights and loaders.

    If updates come between two batches of worker 0 and a ModelCheckpoint is about to save, it takes the snapshot before
    the file gets its name. Any other way of saving is correct too, but a name made earlier from `global_step` has
    worker 0's version, and the checkpoint, which states its own, may be some updates newer.
    """

    def __init__(self, session: WorkerSession) -> None:
        self._session = session
        self._saves_come_first = session.rank == 0 and session.updates_come_between_batches

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._session.show_data()

    @override
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._session.show_data()  # the loaders of this epoch may be others
        self._session.begin_epoch()

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._session.before_validation()

    @override
    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self._before_saving(trainer, _after_batch)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._session.end_epoch()
        if self._saves_come_first and self._session.is_training and ends_here(trainer):
            self._session.snapshots.have()  # of all: what hooks see in the last epoch's end is what the fit leaves
        self._before_saving(trainer, _after_epoch)

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._before_saving(trainer, lambda _, saves: saves.save_on_exception)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._session.end_training()

    def _before_saving(self, trainer: Trainer, due: Callable[[Trainer, ModelCheckpoint], bool]) -> None:
        if not self._saves_come_first or not self._session.is_training:  # an exception comes at any time
            return
        callbacks = trainer.checkpoint_callbacks
        if any(isinstance(callback, ModelCheckpoint) and due(trainer, callback) for callback in callbacks):
            self._session.snapshots.have()


def _after_batch(trainer: Trainer, saves: ModelCheckpoint) -> bool:
    if saves._every_n_train_steps >= 1 and trainer.global_step % saves._every_n_train_steps == 0:
        return True
    interval, since = saves._train_time_interval, saves._last_time_checked
    return interval is not None and since is not None and time.monotonic() - since >= interval.total_seconds()


def _after_epoch(trainer: Trainer, saves: ModelCheckpoint) -> bool:
    every = saves._every_n_epochs
    return every >= 1 and (trainer.current_epoch + 1) % every == 0 and saves._should_save_on_train_epoch_end(trainer)
