"""What a worker may take, as the config says and nothing else: CPU threads, a part of its GPU's memory."""

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from scalebook.training.lightning import AsyncPS


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


class GpuShare(Callback):
    """Has torch refuse what is beyond it, in each worker, as memory that is not there.

    Workers on one GPU have equal parts of the share. What CUDA itself takes in each process, some 500 MB, is besides.
    """

    def __init__(self, share: float) -> None:
        self.share = share

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        strategy = trainer.strategy
        if strategy.root_device.type == "cuda":
            workers = strategy.num_processes if isinstance(strategy, AsyncPS) else 1
            torch.cuda.set_per_process_memory_fraction(self.share / workers, strategy.root_device)
