"""opacus: each sample's gradient is clipped, by the library's optimizer, and by hand before one of torch."""

from typing import Any

import torch
from opacus import GradSampleModule, PrivacyEngine
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer

from tests.clients.case import Setting
from tests.clients.cases.data import clusters, held_out, in_order
from tests.clients.fitting import Simple, perceptron, trained


class Private(Simple):
    """As in the library's example for Lightning: the engine wraps the model, and the optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = GradSampleModule(perceptron())

    def loss(self, batch: Any) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Optimizer:
        self.trainer.fit_loop.setup_data()
        _, optimizer, _ = PrivacyEngine().make_private(
            module=self.net, optimizer=SGD(self.net.parameters(), 0.1), data_loader=self.trainer.train_dataloader,
            noise_multiplier=0.1, max_grad_norm=1.0, poisson_sampling=False,
        )  # fmt: skip
        made: Optimizer = optimizer
        return made


class ClippedByHand(Private):
    """Without noise, so that it can be compared; a plain optimizer steps."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        parameters: list[Any] = list(self.net.parameters())
        norms = torch.stack([one.grad_sample.flatten(1).norm(dim=1) for one in parameters]).norm(dim=0)
        shares = (1.0 / norms).clamp(max=1.0) / len(norms)
        for one in parameters:
            one.grad = torch.einsum("s,s...->...", shares, one.grad_sample)
            one.grad_sample = None
        optimizer.step()

    def configure_optimizers(self) -> Optimizer:
        return SGD(self.net.parameters(), 0.1)


def opacus_engine(setting: Setting) -> dict[str, float]:
    return trained(setting, Private, in_order(setting, *clusters(240)), held_out())[1]


def opacus_by_hand(setting: Setting) -> dict[str, float]:
    return trained(setting, ClippedByHand, in_order(setting, *clusters(240)), held_out())[1]
