"""A model that says how it splits, and ways to train it over several workers."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric

from scalebook.training.lightning import ModelParallel
from tests.training.lightning.async_ps.small import HELD_OUT, SAMPLES, Batch, data, trainer, weights

STEPS = 15
SPLITS = [(2, 1), (1, 2), (2, 2)]
"""Tensor and shard."""


def adam(model: nn.Module) -> Adam:
    return Adam(model.parameters(), lr=0.003)


def momentum(model: nn.Module) -> SGD:
    return SGD(model.parameters(), lr=0.05, momentum=0.9)


class Pair(LightningModule):
    """A normalised layer and a feed-forward pair; widths that two times two workers cannot share equally."""

    def __init__(self, optimizer: Any = adam) -> None:
        super().__init__()
        self.make_optimizer = optimizer
        self.net = nn.Sequential(
            nn.Linear(5, 17), nn.LayerNorm(17), nn.ReLU(), nn.Linear(17, 34), nn.ReLU(), nn.Linear(34, 3)
        )
        self.seen = MeanMetric()

    def parallel_plan(self) -> dict[str, ParallelStyle]:
        return {"net.3": ColwiseParallel(), "net.5": RowwiseParallel()}

    def loss(self, batch: Batch) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        self.log("train/loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val/loss", self.loss(batch), sync_dist=True)
        self.log("val/samples", float(len(batch[0])), reduce_fx="sum", sync_dist=True)
        self.seen.update(batch[2].float())
        self.log("val/mean_index", self.seen)

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return batch[2]

    def configure_optimizers(self) -> Any:
        return self.make_optimizer(self)


def pair(optimizer: Any = adam, kind: type[Pair] = Pair) -> Pair:
    torch.manual_seed(7)
    return kind(optimizer)


def strategy(tensor: int, shard: int) -> Any:
    """One process for 1 x 1."""
    return ModelParallel(tensor, shard) if tensor * shard > 1 else "auto"


def train(
    folder: Path, tensor: int = 1, shard: int = 1, model: LightningModule | None = None, **settings: Any
) -> tuple[Tensor, dict[str, float]]:
    """Fit with all samples in each update, so that their order does not matter; all weights, flat, and the metrics."""
    ckpt_path, nodes = settings.pop("ckpt_path", None), settings.get("num_nodes", 1)
    settings = {"max_epochs": STEPS, "check_val_every_n_epoch": STEPS, "num_sanity_val_steps": 0, **settings}
    model = pair() if model is None else model
    made = trainer(folder, strategy(tensor, shard), tensor * shard // nodes, **settings)
    made.fit(model, DataLoader(data(), SAMPLES // shard, shuffle=True), held_out(), ckpt_path=ckpt_path)
    return weights(model), {name: float(value) for name, value in made.callback_metrics.items()}


def held_out() -> DataLoader[Any]:
    """An odd number of batches, the last one smaller."""
    return DataLoader(data(HELD_OUT - 1), 5)
