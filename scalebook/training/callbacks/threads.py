"""The number of CPU threads of each worker, as the config says and nothing else."""

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override


class Threads(Callback):
    """Sets torch's threads in each worker, after the fork.

    How many there are decides how sums are split, hence the last bit of a loss: so neither the number of cores nor the
    environment counts.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        torch.set_num_threads(self.threads)
