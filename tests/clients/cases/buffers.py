"""How far a buffer of the workers is apart when training ends.

Compared at the same moment only where batches divide by the workers: 32, not 31. Else one is a batch further.
"""

import os
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer


class Apart(Callback):
    """Each worker leaves its buffer in a file, after its last batch; nothing is asked of the strategy."""

    def __init__(self, buffer: str, folder: Path) -> None:
        self._buffer, self._folder = buffer, folder

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        torch.save(pl_module.get_buffer(self._buffer), self._folder / f"buffer-{os.getpid()}.pt")

    def read(self) -> float:
        """The largest distance between two of them, relative to the norm of the first; 0 for one."""
        buffers = [torch.load(path) for path in sorted(self._folder.glob("buffer-*.pt"))]
        return max(float((one - buffers[0]).norm() / buffers[0].norm()) for one in buffers)
