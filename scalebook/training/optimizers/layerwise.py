"""What layer-wise optimizers have in common: a layer is one parameter, weights and biases apart."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer


class LayerWise(Optimizer):
    """Updates one parameter after the other, each from its own gradient and state alone.

    So parameters may be shared out to several optimizers of the kind (the shards of a parameter server) and the numbers
    stay the same to the last bit. A parameter without a gradient stays as it is. Nothing waits for a GPU.
    """

    @abstractmethod
    def update(self, parameter: Parameter, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        """One step of one parameter, in place; the gradient stays as it is."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A step of every parameter; returns what the closure returns. RuntimeError for a sparse gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if parameter.grad.is_sparse:
                    raise RuntimeError(f"{type(self).__name__} does not support sparse gradients. Use SparseAdam.")
                self.update(parameter, parameter.grad, group, self.state[parameter])
        return loss


def is_vector(parameter: Parameter) -> bool:
    """A bias, or the gain or offset of a normalisation: what has at most one dimension."""
    return parameter.ndim <= 1


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Their quotient; 1 where one of them is 0, so that a layer of zeros can leave zero and one without gradient stays
    finite (the papers leave that open; this is what their authors' code does)."""
    usable = (numerator > 0) & (denominator > 0)
    return torch.where(usable, numerator / denominator, torch.ones_like(numerator))


def at_least(least: float, value: float, argument: str) -> float:
    """`value`; ValueError where it is less."""
    if not value >= least:
        raise ValueError(f"optimizer.init_args.{argument}: {value} is less than {least:g}. Give {least:g} or more.")
    return value


def above(least: float, value: float, argument: str) -> float:
    """`value`; ValueError where it is not more."""
    if not value > least:
        raise ValueError(f"optimizer.init_args.{argument}: {value} is not above {least:g}. Give more.")
    return value


def fraction(value: float, argument: str) -> float:
    """`value`; ValueError where it is not in [0, 1)."""
    if not 0 <= value < 1:
        raise ValueError(f"optimizer.init_args.{argument}: {value} is not in [0, 1). Use 0.9, for example.")
    return value
