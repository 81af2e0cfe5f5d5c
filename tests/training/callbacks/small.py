"""A model of one weight, whose loss is known."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers.logger import Logger
from torch import Tensor
from torch.utils.data import DataLoader


class OneWeight(LightningModule):
    """Loss = weight at every step; SGD with rate 0.1 takes 0.1 off it, from 10 down."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(10.0))

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.log("train/weight", self.weight)
        return self.weight * 1.0

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.log("val/loss", self.weight)

    def val_dataloader(self) -> "DataLoader[Any]":
        return loader(1)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Kept(Logger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int | None, dict[str, float]]] = []

    @property
    def name(self) -> str:
        return "kept"

    @property
    def version(self) -> str:
        return "0"

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.points.append((step, dict(metrics)))


def loader(batches: int = 4, batch_size: int = 3) -> "DataLoader[Any]":
    data: Any = torch.zeros(batches * batch_size, 1)
    return DataLoader(data, batch_size=batch_size)


def trainer(*callbacks: Callback, **kwargs: Any) -> Trainer:
    """On the CPU, silent, without a checkpoint of its own."""
    told: dict[str, Any] = {"logger": False, "max_epochs": 2, "enable_checkpointing": False, **kwargs}
    return Trainer(
        accelerator="cpu",
        callbacks=list(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **told,
    )
