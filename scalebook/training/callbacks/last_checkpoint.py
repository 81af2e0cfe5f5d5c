"""The newest state of a run on disk, to resume from or to evaluate."""

import time
from pathlib import Path
from typing import Any, Final

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from typing_extensions import override

from scalebook.training.callbacks.agree import Agreed

EVERY_S: Final = 60.0
"""Training lost at most when a run dies. Saving each short epoch would cost more than the epoch."""

ASK_S: Final = 5.0


class LastCheckpoint(Checkpoint):
    """Keeps `last.ckpt` in `folder`: after a minute of training since the last one, and when training ends.

    The file is replaced in one step, so it is always whole. Under DDP all workers take part; with an asynchronous
    strategy worker 0 writes a consistent snapshot while the others go on.
    """

    def __init__(self, folder: Path, every_s: float = EVERY_S) -> None:
        super().__init__()
        self.path = folder / "last.ckpt"
        self.every_s = every_s
        self._saved = time.monotonic()
        self._due = Agreed(lambda: time.monotonic() - self._saved >= self.every_s, min(ASK_S, every_s))

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saved = time.monotonic()

    @override
    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        if self._due.now(trainer):
            self._save(trainer)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        beside = self.path.with_suffix(".part")
        trainer.save_checkpoint(beside)
        if trainer.is_global_zero:
            beside.replace(self.path)
        self._saved = time.monotonic()
