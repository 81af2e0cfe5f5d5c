"""Optimizers of other libraries, and those that people change by hand: attributes, wrapped steps, hooks, SAM."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytorch_optimizer
import torch
from prodigyopt import Prodigy
from schedulefree import AdamWScheduleFree
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer

from tests.clients.case import Setting
from tests.clients.cases.data import clusters, held_out, in_order
from tests.clients.fitting import Model, Simple, perceptron, trained


class Classifier(Simple):
    """With an optimizer that is made from it."""

    def __init__(self, make: Callable[[torch.nn.Module], Optimizer]) -> None:
        super().__init__()
        self.make = make
        self.net = perceptron()

    def loss(self, batch: Any) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Optimizer:
        return self.make(self.net)


class WithModes(Classifier):
    """Schedule-free optimizers have other weights in validation, and at the end."""

    def _mode(self, name: str) -> None:
        for optimizer in self.trainer.optimizers:
            getattr(optimizer, name)()

    def on_train_start(self) -> None:
        self._mode("train")

    def on_validation_start(self) -> None:
        self._mode("eval")

    def on_validation_end(self) -> None:
        self._mode("train")

    def on_train_end(self) -> None:
        self._mode("eval")


class Multiplied(SGD):
    """A rate that parameters may multiply by an attribute."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-group["lr"] * getattr(parameter, "lr_mult", 1.0))
        return loss


def _multiplied(net: torch.nn.Module) -> Optimizer:
    first: Any = next(net.parameters())
    first.lr_mult = 10.0
    return Multiplied(net.parameters(), 0.02)


@torch.no_grad()
def _clip(net: torch.nn.Module) -> None:
    for parameter in net.parameters():
        parameter.clamp_(-0.3, 0.3)


def _wrapped(net: torch.nn.Module) -> Optimizer:
    optimizer = SGD(net.parameters(), 0.1)
    step = optimizer.step

    @wraps(step)
    def clipped(*arguments: Any, **options: Any) -> Any:
        loss = step(*arguments, **options)
        _clip(net)
        return loss

    optimizer.step = clipped  # type: ignore[method-assign]  # as people do it
    return optimizer


def _hooked(net: torch.nn.Module) -> Optimizer:
    optimizer = SGD(net.parameters(), 0.1)
    optimizer.register_step_post_hook(lambda *_: _clip(net))
    return optimizer


class SharpnessAware(Classifier):
    """Foret et al. 2021, by hand: the gradient is that at the worst point nearby."""

    def __init__(self) -> None:
        super().__init__(lambda net: SGD(net.parameters(), 0.1))
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        parameters = list(self.net.parameters())
        before = [parameter.detach().clone() for parameter in parameters]
        with torch.no_grad():
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.add_(gradient * (0.05 / norm))
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        with torch.no_grad():
            for parameter, kept in zip(parameters, before, strict=True):
                parameter.copy_(kept)
        optimizer.step()


class WrappedSharpnessAware(Classifier):
    """By the optimizer of a library that has another one inside."""

    def __init__(self) -> None:
        super().__init__(lambda net: pytorch_optimizer.SAM(net.parameters(), SGD, rho=0.05, lr=0.1))
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        optimizer.step(lambda: self.manual_backward(self.loss(batch)))


def _trained(setting: Setting, make_model: Callable[[], Model]) -> dict[str, float]:
    return trained(setting, make_model, in_order(setting, *clusters(240)), held_out())[1]


def schedule_free(setting: Setting) -> dict[str, float]:
    return _trained(setting, lambda: WithModes(lambda net: AdamWScheduleFree(net.parameters(), lr=0.01)))


def prodigy(setting: Setting) -> dict[str, float]:
    return _trained(setting, lambda: Classifier(lambda net: Prodigy(net.parameters(), d_coef=0.1)))


def adabelief(setting: Setting) -> dict[str, float]:
    return _trained(setting, lambda: Classifier(lambda net: pytorch_optimizer.AdaBelief(net.parameters(), lr=0.01)))


def multiplied(setting: Setting) -> dict[str, float]:
    return _trained(setting, lambda: Classifier(_multiplied))


def wrapped_step(setting: Setting) -> dict[str, float]:
    return _trained(setting, lambda: Classifier(_wrapped))


def step_hook(setting: Setting) -> dict[str, float]:
    return _trained(setting, lambda: Classifier(_hooked))


def sharpness_aware(setting: Setting) -> dict[str, float]:
    return _trained(setting, SharpnessAware)


def wrapped_sharpness_aware(setting: Setting) -> dict[str, float]:
    return _trained(setting, WrappedSharpnessAware)
