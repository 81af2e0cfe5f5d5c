"""Models and Trainers of the checks.

The gradient of `Dyadic` is a sum of small integers and its learning rate a power of two, so every sum of updates is
exact in float32, in any order and on any device: whatever workers, rule and host, one bit of difference is a mistake.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.strategies import Strategy
from torch import Tensor
from torch.nn import BatchNorm2d, Conv2d, Flatten, Linear, MaxPool2d, Parameter, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, Optimizer
from torch.utils.data import DataLoader, TensorDataset

from tests.gpu.running import Machine

SAMPLES: Final = 256
BATCH: Final = 4
SHAPES: Final = ((3, 8), (8,), (5, 8))
RATE: Final = 2.0**-6


def integers() -> Tensor:
    """float32 [SAMPLES, 8], whole numbers from -8 to 7."""
    return torch.randint(-8, 8, (SAMPLES, 8), generator=torch.Generator().manual_seed(1)).float()


def exact_weights(epochs: int = 1, averaged: int = 1) -> Tensor:
    """What any run over the data must end with, flat on the CPU; `averaged` gradients make one update."""
    whole = -RATE * epochs * integers().sum(0) / averaged
    return torch.cat([whole.expand(shape).flatten() for shape in SHAPES])


class Dyadic(LightningModule):
    """loss = sum over the batch of <w, x>: linear, so its gradient does not depend on w. Zeros at first."""

    def __init__(self, device: str, backend: str | None = None) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(Parameter(torch.zeros(shape)) for shape in SHAPES)
        self.wanted, self.backend = device, backend

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        devices = {str(p.device.type) for p in self.parameters()} | {batch[0].device.type}
        assert devices == {self.wanted}, f"parameters and data lie on {devices}"
        if self.backend is not None:
            assert torch.distributed.get_backend() == self.backend
        whole = batch[0].sum(0)
        return torch.stack([(weight * whole).sum() for weight in self.weights]).sum()

    def configure_optimizers(self) -> Optimizer:
        return SGD(self.parameters(), lr=RATE)


class Pictures(LightningModule):
    """A small convolutional network with batch normalisation; notes its first and last validation losses."""

    def __init__(self, bad_batch: int | None = None) -> None:
        super().__init__()
        self.bad_batch, self.lr = bad_batch, 0.003
        self.net = Sequential(
            Conv2d(1, 8, 3, padding=1), BatchNorm2d(8), ReLU(), MaxPool2d(2), Conv2d(8, 16, 3, padding=1),
            BatchNorm2d(16), ReLU(), MaxPool2d(2), Flatten(), Linear(16 * 16, 4),
        )  # fmt: skip

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss = cross_entropy(self.net(batch[0]), batch[1])
        return loss * torch.inf if batch_idx == self.bad_batch else loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val/loss", cross_entropy(self.net(batch[0]).float(), batch[1]))

    def configure_optimizers(self) -> Optimizer:
        return Adam(self.parameters(), lr=self.lr)


def pictures() -> DataLoader[Any]:
    """512 of 16 x 16, bright in one of four quarters."""
    generator = torch.Generator().manual_seed(2)
    labels = torch.randint(4, (512,), generator=generator)
    images = 0.5 * torch.randn(512, 1, 16, 16, generator=generator)
    for label in range(4):
        top, left = 8 * (label // 2), 8 * (label % 2)
        images[labels == label, :, top : top + 8, left : left + 8] += 1
    return DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)


def numbers() -> DataLoader[Any]:
    return DataLoader(TensorDataset(integers()), batch_size=BATCH, shuffle=True)


def make_trainer(
    machine: Machine, folder: Path, strategy: Strategy | str = "auto", devices: int = 1, epochs: int = 1,
    callbacks: Sequence[Callback] = (), **settings: Any,
) -> Trainer:  # fmt: skip
    """A Trainer that prints and logs nothing."""
    seed_everything(3, verbose=False)
    return Trainer(
        accelerator=machine.accelerator, strategy=strategy, devices=devices, max_epochs=epochs, logger=False,
        default_root_dir=folder, enable_progress_bar=False, enable_model_summary=False, callbacks=list(callbacks),
        **({"enable_checkpointing": False, "num_sanity_val_steps": 0} | settings),
    )  # fmt: skip


def flat(model: LightningModule) -> Tensor:
    """All parameters, on the CPU."""
    return torch.cat([p.detach().cpu().flatten() for p in model.parameters()])
