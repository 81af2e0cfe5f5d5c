"""Models of the kinds that people train; what they saw goes into `notes`, which the diary takes along."""

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.optim import SGD, Adam, Optimizer

from tests.training.lightning.async_ps.small import Batch, Small, make_sgd


class Plain(Small):
    """Small without dropout: its gradients depend on parameters and batch alone."""

    def __init__(self, optimizer: Callable[[LightningModule], Any] = make_sgd) -> None:
        torch.manual_seed(7)
        super().__init__(optimizer)
        self.net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
        self.notes: dict[str, Any] = {}


class Manual(Plain):
    """One optimizer, stepped by hand in every second batch, the layers toggled."""

    def __init__(self, optimizer: Callable[[LightningModule], Any] = make_sgd) -> None:
        super().__init__(optimizer)
        self.automatic_optimization = False

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        optimizer: Any = self.optimizers()
        self.toggle_optimizer(optimizer)
        loss = cross_entropy(self.net(batch[0]), batch[1])
        optimizer.zero_grad()
        self.manual_backward(loss)
        if batch_idx % 2:
            optimizer.step()
        self.untoggle_optimizer(optimizer)
        return loss


class GAN(Plain):
    """Two optimizers of different kinds: a discriminator of the inputs, a generator of inputs from labels."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 5))
        self.judge = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        optimizers: Any = self.optimizers()
        generator, discriminator = optimizers
        labels = nn.functional.one_hot(batch[1], 3).to(batch[0].dtype)
        self.toggle_optimizer(discriminator)
        self._step(discriminator, self._loss(batch[0], 1.0) + self._loss(self.net(labels).detach(), 0.0))
        self.untoggle_optimizer(discriminator)
        self.toggle_optimizer(generator)
        loss = self._loss(self.net(labels), 1.0)
        self._step(generator, loss)
        self.untoggle_optimizer(generator)
        return loss

    def _loss(self, inputs: Tensor, answer: float) -> Tensor:
        logits = self.judge(inputs)
        return binary_cross_entropy_with_logits(logits, torch.full_like(logits, answer))

    def _step(self, optimizer: Any, loss: Tensor) -> None:
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val/loss", self._loss(batch[0], 1.0), sync_dist=True)

    def configure_optimizers(self) -> list[Optimizer]:
        return [SGD(self.net.parameters(), lr=0.05), Adam(self.judge.parameters(), lr=0.01)]


class Odd(Plain):
    """A tied weight, a frozen layer, and one that has a gradient in every other step only."""

    def __init__(self) -> None:
        super().__init__()
        self.twin = nn.Linear(5, 16)
        self.twin.weight = self.net[0].weight  # type: ignore[assignment]
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.sometimes = nn.Linear(3, 3)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        out = self.frozen(self.net[2](self.net[0](batch[0]) + self.twin(batch[0])))
        return cross_entropy(self.sometimes(out) if batch_idx % 2 else out, batch[1])


class Normalised(Plain):
    """With batch normalisation; notes the running mean of its own batches."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))

    @property
    def norm(self) -> nn.BatchNorm1d:
        norm = self.net[1]
        assert isinstance(norm, nn.BatchNorm1d)
        return norm

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        assert self.norm.running_mean is not None
        self.notes["running_mean"] = self.norm.running_mean.tolist()

    def on_validation_epoch_end(self) -> None:
        assert self.norm.running_mean is not None
        self.notes["validated_with"] = self.norm.running_mean.tolist()


class Averages(Plain):
    """A moving average of the inputs, which no parameter has a say in: put in anew, with a queue and its pointer."""

    def __init__(self) -> None:
        super().__init__()
        self.average: Tensor
        self.register_buffer("average", torch.zeros(5, dtype=torch.float64))
        self.memory = nn.Module()
        self.memory.register_buffer("queue", torch.zeros(4))
        self.memory.register_buffer("pointer", torch.zeros((), dtype=torch.int64))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.notes.setdefault("begins", []).append(self.average.tolist())
        self.average = 0.75 * self.average + 0.25 * (batch[0].mean(0).double() + self.global_rank)
        inner: Any = self.memory
        inner.queue[inner.pointer % 4] = batch[0].sum()
        inner.pointer += 1
        return super().training_step(batch, batch_idx)


class Late(Plain):
    """Makes a layer in the worker."""

    def configure_model(self) -> None:
        if not hasattr(self, "late"):
            self.late = nn.Linear(3, 3)
            nn.init.eye_(self.late.weight)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return cross_entropy(self.late(self.net(batch[0])), batch[1])
