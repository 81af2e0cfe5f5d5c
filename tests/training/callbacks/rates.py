"""Models whose weights say which learning rates they were stepped with, and that note the rates they see inside."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn import Parameter, ParameterList
from torch.optim import SGD, Optimizer

from scalebook.training.lightning.async_ps.applied_step import CountsUpdates
from tests.training.lightning.async_ps.small import Batch

Configure = Callable[[LightningModule], Any]


def plain(model: LightningModule) -> Any:
    return SGD(model.parameters(), lr=0.1)


class Falling(LightningModule):
    """Each loss is the sum of its weights, so each step takes the learning rate off every weight, to the last bit.

    Notes for each training step the updates known and the rates of all groups of all optimizers.
    """

    def __init__(self, configure: Configure = plain, weights: int = 2) -> None:
        super().__init__()
        self.weights = ParameterList(Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(weights))
        self.configure = configure
        self.notes: dict[str, Any] = {"steps": []}

    def configure_optimizers(self) -> Any:
        return self.configure(self)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.note(self.trainer.optimizers)
        return torch.stack(list(self.weights)).sum()

    def note(self, optimizers: Sequence[Optimizer]) -> None:
        strategy = self.trainer.strategy
        for optimizer in optimizers:
            updates = strategy.version(optimizer) if isinstance(strategy, CountsUpdates) else self.global_step
            self.notes["steps"].append([updates, [group["lr"] for group in optimizer.param_groups]])


class TwoByHand(Falling):
    """Manual optimization with two optimizers, each with a weight of its own and with a schedule stepped by hand.

    The second is stepped in every `every`-th batch. `seen`: by optimizer, the rates of each of its steps.
    """

    def __init__(self, configure: Configure, every: int = 1) -> None:
        super().__init__(configure)
        self.automatic_optimization = False
        self.every = every
        self.seen: tuple[list[list[float]], list[list[float]]] = ([], [])

    def training_step(self, batch: Batch, batch_idx: int) -> None:  # type: ignore[override]  # nothing to return
        optimizers: Any = self.optimizers()
        schedulers: Any = self.lr_schedulers()
        for number, weight in enumerate(self.weights):
            if number and (batch_idx + 1) % self.every:
                continue
            optimizer, seen = optimizers[number], self.seen[number]
            optimizer.zero_grad()
            self.manual_backward(weight.sum())
            groups = optimizer.param_groups
            optimizer.step(closure=lambda groups=groups, seen=seen: seen.append([group["lr"] for group in groups]))
            schedulers[number].step()
