"""A module of a person's own with what Lightning's documentation of its command line calls dependency injection."""

from typing import Final

NAME: Final = "injections_of_mine"
MODULE: Final = '''
import abc
from collections.abc import Callable
from typing import Optional, Union

import torch
from lightning import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable, ReduceLROnPlateau
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ConstantLR, LRScheduler, StepLR
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy


class Narrow(nn.Module):
    """A linear layer after another.

    Args:
        width: How wide the first one is.
    """

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Linear(width, 10))

    def forward(self, images):
        return self.layers(images)


class Scaled(nn.Module):
    """Another net, times a number."""

    def __init__(self, inner: nn.Module, factor: float = 1.0) -> None:
        super().__init__()
        self.inner, self.factor = inner, factor

    def forward(self, images):
        return self.factor * self.inner(images)


class Unclear(nn.Module):
    def __init__(self, width) -> None:
        super().__init__()


class Trained(LightningModule, abc.ABC):
    @abc.abstractmethod
    def net_of(self): ...

    def training_step(self, batch, batch_idx):
        return self._loss(batch, "train")

    def validation_step(self, batch, batch_idx):
        self._loss(batch, "val")
        self.accuracy(self.net_of()(batch[0]), batch[1])
        self.log("val/accuracy", self.accuracy)

    def _loss(self, batch, stage):
        loss = nn.functional.cross_entropy(self.net_of()(batch[0]), batch[1])
        self.log(f"{stage}/loss", loss)
        return loss


class WithNet(Trained):
    """A net from outside.

    Args:
        net: What is trained.
        optimizer: How it is.
        scheduler: How its learning rate changes.
    """

    def __init__(
        self,
        net: torch.nn.Module,
        optimizer: OptimizerCallable = lambda p: torch.optim.SGD(p, lr=0.5),
        scheduler: Optional[LRSchedulerCallable] = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters("optimizer", "scheduler", logger=False)
        self.net, self.optimizer, self.scheduler = net, self.hparams.optimizer, scheduler
        self.accuracy = MulticlassAccuracy(10)

    def net_of(self):
        return self.net

    def configure_optimizers(self):
        optimizer = self.optimizer(self.parameters())
        return optimizer if self.scheduler is None else ([optimizer], [self.scheduler(optimizer)])


class WithAll(WithNet):
    def __init__(
        self,
        net: Narrow,
        nets: list[nn.Module] = [],
        named: dict[str, nn.Module] = {},
        some: nn.Module | int | None = None,
        loss: nn.Module = nn.CrossEntropyLoss(),
        made: nn.Module = Narrow(3),
        activation: Callable[[], nn.Module] = nn.ReLU,
        sized: Callable[[int], nn.Module] | None = None,
        anything: Callable[..., nn.Module] = nn.ReLU,
        several: list[OptimizerCallable] = [],
        schedules: Optional[dict[str, LRSchedulerCallable]] = None,
        constant: Callable[[Optimizer], LRScheduler] = ConstantLR,
        either: LRSchedulerCallable = lambda o: ReduceLROnPlateau(o, monitor="val/loss"),
        unread: Callable[[Optimizer], Union[LRScheduler, ReduceLROnPlateau]] = lambda o: StepLR(o, 2),
        maybe: Union[OptimizerCallable, None] = None,
        function: Callable = nn.functional.mse_loss,
        kind: type[nn.Module] = nn.GELU,
        metric: Metric | None = None,
        unknown: "Nowhere" = None,
    ) -> None:
        super().__init__(net, torch.optim.Adam)


class Untyped(WithNet):
    def __init__(self, width) -> None:
        super().__init__(Narrow(width))
'''


def path(name: str) -> str:
    """The dotted name of a class of that module."""
    return f"{NAME}.{name}"
