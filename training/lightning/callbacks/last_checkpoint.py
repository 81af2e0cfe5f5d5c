"""Saves the newest state of a run, to resume from or to evaluate."""

import time
from pathlib import Path
from typing import Any, Final

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from typing_extensions import override

from scalebook.training.lightning.callbacks.agreement import AgreedDecision
from scalebook.training.lightning.run_figures import figures_of

EVERY_S: Final = 60.0
"""The most training time lost when a run dies, s. Saving each short epoch would cost more than the epoch."""

ASK_S: Final = 5.0


class LastCheckpoint(Checkpoint):
    """Writes `last.ckpt` into `folder` after each minute of training, and when training ends.

    The file is replaced atomically, so it is always complete. Under DDP all workers take part; with an asynchronous
    strategy worker 0 writes a consistent snapshot while the others go on. A simulated run that is asked to stop is
    saved at once, in the middle of an epoch: at the end Lightning would have counted that epoch as over.
    """

    def __init__(self, folder: Path, every_s: float = EVERY_S) -> None:
        super().__init__()
        self.path = folder / "last.ckpt"
        self.every_s = every_s
        self._saved = time.monotonic()
        self._paused = False
        self._due = AgreedDecision(lambda: time.monotonic() - self._saved >= self.every_s, min(ASK_S, every_s))

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saved, self._paused = time.monotonic(), False

    @override
    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        self._paused = trainer.should_stop and saves_where_it_is(trainer)
        if self._due.now(trainer) or self._paused:
            self._save(trainer)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._paused:
            self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        beside = self.path.with_suffix(".part")
        trainer.save_checkpoint(beside)
        if trainer.is_global_zero:
            beside.replace(self.path)
        self._saved = time.monotonic()


def saves_where_it_is(trainer: Trainer) -> bool:
    """Whether a run that is asked to stop is saved in the middle of its epoch, before Lightning counts that as over."""
    figures = figures_of(trainer)
    return figures is not None and figures.is_simulated and trainer.fit_loop._can_stop_early
