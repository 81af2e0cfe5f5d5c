"""A small model, its data and its Trainer; and a way for workers to tell the test what they saw."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.strategies import Strategy
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchmetrics import MeanMetric

SAMPLES = 96
HELD_OUT = 32
"""Samples to validate on. Few: to Lightning a batch of them is as much work as one to train on."""
Batch = list[Tensor]


def make_sgd(model: LightningModule) -> Any:
    return SGD(model.parameters(), lr=0.05)


class Small(LightningModule):
    """Three layers with dropout; logs with `sync_dist` and validates with a torchmetric, as people do."""

    def __init__(self, optimizer: Callable[[LightningModule], Any] = make_sgd) -> None:
        super().__init__()
        self.make_optimizer = optimizer
        self.net = torch.nn.Sequential(
            torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 3)
        )
        self.seen = MeanMetric()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = cross_entropy(self.net(batch[0]), batch[1])
        self.log("train/loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val/loss", cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)
        self.seen.update(batch[2].float())
        self.log("val/mean_index", self.seen)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("test/loss", cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        out: Tensor = self.net(batch[0])
        return out

    def configure_optimizers(self) -> Any:
        return self.make_optimizer(self)


def data(samples: int = SAMPLES) -> Dataset[tuple[Tensor, ...]]:
    """Inputs, labels that depend on them, and the sample's number."""
    inputs = torch.randn(samples, 5, generator=torch.Generator().manual_seed(3))
    return TensorDataset(inputs, inputs[:, :3].argmax(1), torch.arange(samples))


def loader(shuffle: bool = False, samples: int = SAMPLES) -> DataLoader[Any]:
    return DataLoader(data(samples), batch_size=8, shuffle=shuffle)


def held_out() -> DataLoader[Any]:
    """For validation, in order."""
    return loader(samples=HELD_OUT)


def trainer(folder: Path, strategy: Strategy | str, devices: int = 1, **settings: Any) -> Trainer:
    seed_everything(11, verbose=False)
    settings = {"max_epochs": 2, "enable_checkpointing": False, "enable_progress_bar": False, **settings}
    return Trainer(
        accelerator="cpu",
        strategy=strategy,
        devices=devices,
        default_root_dir=folder,
        logger=False,
        enable_model_summary=False,
        **settings,
    )


def fit(made: Trainer, model: LightningModule | None = None, **arguments: Any) -> Tensor:
    """Fit and return all weights, flat, as the process that asked has them afterwards."""
    model = model or seeded_model()
    made.fit(model, loader(shuffle=True), held_out(), **arguments)
    return weights(model)


def seeded_model(optimizer: Callable[[LightningModule], Any] = make_sgd) -> Small:
    torch.manual_seed(7)
    return Small(optimizer)


def weights(model: LightningModule) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


class Diary(Callback):
    """Each worker writes what it saw into `folder/<worker>.json`, and what its model keeps in `notes`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: dict[str, Any] = {"train": [], "val": [], "lrs": [], "validations": 0, "pid": 0, "errors": []}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.notes["train"] += batch[2].tolist()
        self.notes["lrs"].append(trainer.optimizers[0].param_groups[0]["lr"])

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.notes["validations"] += not trainer.sanity_checking

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if not trainer.sanity_checking:
            self.notes["val"] += batch[2].tolist()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        strategy: Any = trainer.strategy
        self.notes["updates"] = trainer.global_step
        if hasattr(strategy, "figures"):
            histogram = strategy.figures.staleness()
            self.notes.update(updates=strategy.figures.counts().updates, histogram=histogram.counts.sum(1).tolist())
        self.notes["lr"] = trainer.optimizers[0].param_groups[0]["lr"]
        self.notes |= getattr(pl_module, "notes", {})
        self.write(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.notes["errors"].append(type(exception).__name__)
        self.write(trainer)

    def write(self, trainer: Trainer) -> None:
        self.notes["pid"] = os.getpid()
        (self.folder / f"{trainer.global_rank}.json").write_text(json.dumps(self.notes))


def diaries(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("?.json"))]


class AtBatch(Callback):
    """Calls `what` in worker `worker`, before its batch number `batch` (counted over epochs)."""

    def __init__(self, worker: int, batch: int, what: Callable[[Trainer], None]) -> None:
        self.worker, self.batch, self.what, self.count = worker, batch, what, 0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.global_rank == self.worker and self.count == self.batch:
            self.what(trainer)
        self.count += 1


def kill_me(trainer: Trainer) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def two_optimizers(model: LightningModule) -> list[Optimizer]:
    return [make_sgd(model), make_sgd(model)]
