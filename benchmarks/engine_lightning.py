"""The task of `benchmarks.engine` through Lightning's Trainer, under any strategy."""

import logging
import tempfile
import time
import warnings
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.nn import Linear, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader, Dataset

from benchmarks.engine_task import BATCH, LEARNING_RATE, SAMPLES, STEPS_PER_S, WARM_UP_STEPS, Measured
from scalebook.training.lightning import register
from scalebook.training.lightning.processes.run_workers import run_workers


class InMemory(Dataset[tuple[Tensor, Tensor]]):
    """Rows that the loader fetches a batch at a time, so that it costs little; each worker has `SAMPLES` of its own."""

    def __init__(self, workers: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.rand(workers * SAMPLES, 784, generator=generator)
        self.labels = torch.randint(10, (workers * SAMPLES,), generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        index = torch.tensor(rows)
        return self.inputs.index_select(0, index), self.labels.index_select(0, index)


class Perceptron(LightningModule):
    """784-512-512-10."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Sequential(Linear(784, 512), ReLU(), Linear(512, 512), ReLU(), Linear(512, 10))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Optimizer:
        return SGD(self.parameters(), lr=LEARNING_RATE)


class Clock(Callback):
    """Times this worker's steps after the warm-up and ends the run; worker 0 puts the figures into the metrics."""

    def __init__(self, steps: int) -> None:
        self.steps, self.count, self.started, self.cpu = steps, 0, 0.0, 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self.count == WARM_UP_STEPS:
            self.started, self.cpu = time.perf_counter(), time.process_time()
        if self.count == WARM_UP_STEPS + self.steps:
            seconds, cpu = time.perf_counter() - self.started, time.process_time() - self.cpu
            trainer.callback_metrics["step_s"] = torch.tensor(seconds / self.steps, dtype=torch.float64)
            trainer.callback_metrics["cpu_s"] = torch.tensor(cpu / self.steps, dtype=torch.float64)
            strategy: Any = trainer.strategy
            if hasattr(strategy, "figures"):
                trainer.callback_metrics["staleness"] = torch.tensor(strategy.figures.staleness().mean())
                trainer.should_stop = trainer.is_global_zero  # asynchronous workers have no common number of steps
        self.count += 1


def through_lightning(strategy: str, workers: int, seconds: float) -> Measured:
    """Worker 0's step time and CPU time stand for those of all workers."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    register()
    steps = max(1, int(seconds * STEPS_PER_S))
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            accelerator="cpu",
            strategy=strategy,
            devices=workers,
            max_epochs=1_000_000,
            max_steps=-1 if strategy == "async_ps" else WARM_UP_STEPS + steps + 1,
            callbacks=[Clock(steps)],
            default_root_dir=folder,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        data = InMemory(workers)
        trainer.fit(Perceptron(), DataLoader(data, batch_size=BATCH, shuffle=True, collate_fn=_as_it_is))
    metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
    per_update = 1 if strategy == "async_ps" else workers  # gradients averaged into one update
    gradients = workers / metrics["step_s"]
    return Measured(gradients / per_update, gradients, 1000 * metrics["cpu_s"], metrics.get("staleness", 0.0))


def unconnected(processes: int, seconds: float) -> Measured:
    """A Trainer in each of several processes that share nothing: the limit of the machine."""
    alone = run_workers(processes, lambda worker: through_lightning("auto", 1, seconds))
    rate = sum(measured.gradients_per_s for measured in alone)
    return Measured(rate, rate, sum(measured.cpu_ms for measured in alone) / processes)


def _as_it_is(batch: Any) -> Any:
    return batch
