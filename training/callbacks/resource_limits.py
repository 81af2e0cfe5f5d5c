"""Limits on a worker's resources by the config: CPU threads, a share of its GPU's memory."""

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from scalebook.training.lightning import EngineStrategy, SkipsEmptyHooks


class Threads(SkipsEmptyHooks, Callback):
    """Sets torch's threads in each worker, after the fork.

    The number of threads decides how sums are split, hence the last bit of a loss: so it depends neither on the number
    of cores nor on the environment.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        torch.set_num_threads(self.threads)


class GpuShare(SkipsEmptyHooks, Callback):
    """Limits torch's memory on the GPU in each worker; beyond it torch raises an out-of-memory error.

    Workers on one GPU have equal parts of the share. CUDA's own memory in each process, about 500 MB, comes on top.
    """

    def __init__(self, share: float) -> None:
        self.share = share

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        strategy = trainer.strategy
        if strategy.root_device.type == "cuda":
            workers = strategy.num_processes if isinstance(strategy, EngineStrategy) else 1
            torch.cuda.set_per_process_memory_fraction(self.share / workers, strategy.root_device)
