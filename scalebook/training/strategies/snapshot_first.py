"""A snapshot before a checkpoint is given its name, so that the name has the step of what is in it."""

import time
from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from typing_extensions import override


class SnapshotFirst(Callback):
    """Stands first among worker 0's callbacks, and calls `take` when a ModelCheckpoint is about to save.

    Whatever else saves is right too, but a name made from `global_step` before is of the version that worker 0 had,
    and the checkpoint, which says so itself, may be some updates newer.
    """

    def __init__(self, take: Callable[[], object], is_training: Callable[[], bool]) -> None:
        self._take, self._is_training = take, is_training

    @override
    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self._if_any(trainer, _after_batch)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._if_any(trainer, _after_epoch)

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._if_any(trainer, lambda _, saves: saves.save_on_exception)

    def _if_any(self, trainer: Trainer, due: Callable[[Trainer, ModelCheckpoint], bool]) -> None:
        theirs = trainer.checkpoint_callbacks if self._is_training() else []  # an exception comes at any time
        if any(isinstance(callback, ModelCheckpoint) and due(trainer, callback) for callback in theirs):
            self._take()


def _after_batch(trainer: Trainer, saves: ModelCheckpoint) -> bool:
    if saves._every_n_train_steps >= 1 and trainer.global_step % saves._every_n_train_steps == 0:
        return True
    interval, since = saves._train_time_interval, saves._last_time_checked
    return interval is not None and since is not None and time.monotonic() - since >= interval.total_seconds()


def _after_epoch(trainer: Trainer, saves: ModelCheckpoint) -> bool:
    every = saves._every_n_epochs
    return every >= 1 and (trainer.current_epoch + 1) % every == 0 and saves._should_save_on_train_epoch_end(trainer)
