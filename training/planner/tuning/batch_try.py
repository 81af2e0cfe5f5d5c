"""Measures one try of a batch size: seconds a step, memory taken and left, the size of the training set."""

from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from typing_extensions import override

from scalebook.training.base import MB, ConfigError, data_bytes, free_bytes
from scalebook.training.base.files import records
from scalebook.training.callbacks import DivergenceGuard, Pictures, batch_size, training_samples
from scalebook.training.lightning import SkipsEmptyHooks, figures_of
from scalebook.training.tracking import names, upload


class BatchTry(SkipsEmptyHooks, Callback):
    """Worker 0 writes `batch.json` into the run's folder: the training set's size at the start, everything at the end.

    Refuses batches that the training set cannot fill: `batch_size` samples for each worker at a time. Ends the run
    after `updates` whole batches of worker 0, when every worker has computed a gradient: the smaller last batch of an
    epoch does not count. Memory of a CPU is private writable memory beyond that at the start, read after forward,
    backward and update (20 us each). What is left of a GPU's memory is what no process of it has taken, or the rest of
    the worker's share.
    """

    def __init__(self, batch_size: int, updates: int) -> None:
        self.batch_size, self.updates = batch_size, updates
        self._told: dict[str, Any] = {}
        self._began = self._peak = 0
        self._left: int | None = None
        self._begun = 0.0
        self._steps: list[float] = []  # seconds, of whole batches

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Remove callbacks that judge or draw the model: three updates say nothing about it."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # made by Lightning's connector
        remaining = [callback for callback in callbacks if not isinstance(callback, DivergenceGuard | Pictures)]
        trainer.callbacks = remaining  # type: ignore[attr-defined]  # as above
        if self._on_gpu(trainer):
            torch.cuda.reset_peak_memory_stats(trainer.strategy.root_device)
        else:
            self._began = self._peak = data_bytes()
            self._left = free_bytes()

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record what is tried, and leave out the model's schedules: nothing that they may wait for is validated."""
        trainer.strategy.lr_scheduler_configs = []
        samples, workers = training_samples(trainer), trainer.world_size
        self._told = {"batch_size": self.batch_size, "workers": workers, "training_samples": samples}
        self._write(trainer)
        if samples is not None and self.batch_size * workers > samples:
            each = f" for each of {workers} workers" if workers > 1 else ""
            raise ConfigError(
                "data.init_args.batch_size",
                f"is {self.batch_size}{each}, but the training set has only {samples} samples",
                "A batch cannot be larger than the training set.",
            )

    @override
    def on_train_batch_start(self, *args: Any) -> None:
        self._begun = perf_counter()

    @override
    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        self._look(trainer)

    @override
    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._look(trainer)

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._on_gpu(trainer):
            torch.cuda.synchronize(trainer.strategy.root_device)
        self._look(trainer)
        if batch_size(batch) == self.batch_size:
            self._steps.append(perf_counter() - self._begun)
            trainer.should_stop |= len(self._steps) >= self.updates and _may_stop(trainer)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        steps = self._steps[1:] or self._steps  # the first one warms up
        self._told |= {"step_s": median(steps) if steps else None, **self._memory(trainer)}
        self._write(trainer)
        if trainer.is_global_zero:
            upload(trainer, self._path(trainer))

    def _memory(self, trainer: Trainer) -> dict[str, float | None]:
        """MB taken at most, and MB left at that moment; None where nothing limits it."""
        if self._on_gpu(trainer):
            device = trainer.strategy.root_device
            left, taken = self._left, torch.cuda.max_memory_allocated(device)
        else:
            taken = self._peak - self._began
            left = None if self._left is None else self._left - taken
        return {"memory_mb": taken / MB, "free_mb": None if left is None else left / MB}

    def _look(self, trainer: Trainer) -> None:
        if self._on_gpu(trainer):
            left = _left_of_gpu(trainer.strategy.root_device)
            self._left = left if self._left is None else min(self._left, left)
        else:
            self._peak = max(self._peak, data_bytes())

    def _write(self, trainer: Trainer) -> None:
        if trainer.is_global_zero:
            records.save(self._path(trainer), self._told)

    def _path(self, trainer: Trainer) -> Path:
        return Path(trainer.default_root_dir) / names.BATCH_JSON

    def _on_gpu(self, trainer: Trainer) -> bool:
        return trainer.strategy.root_device.type == "cuda"


def _may_stop(trainer: Trainer) -> bool:
    """Of workers on their own worker 0 may stop them all, once each has computed a gradient, and so has taken its
    memory; those in step, and simulated ones, stop when they have done enough."""
    figures = figures_of(trainer)
    if figures is None or figures.is_simulated or not (workers := figures.worker_times()):
        return True
    return trainer.is_global_zero and all(times.gradients for times in workers)


def _left_of_gpu(device: torch.device) -> int:
    """Bytes that this process could still take of the GPU: what no process has, no more than the rest of its share."""
    free, whole = torch.cuda.mem_get_info(device)
    share = torch.cuda.get_per_process_memory_fraction(device)
    return min(free, round(share * whole) - torch.cuda.memory_reserved(device))
