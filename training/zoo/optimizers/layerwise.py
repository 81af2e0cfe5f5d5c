"""What layer-wise optimizers have in common: a layer is one parameter, weights and biases apart."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, Final

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from scalebook.training.engine.rules.bounds import AtLeast, Below, check

KEY: Final = "optimizer.init_args"
NonNegativeFloat = Annotated[float, AtLeast(0)]
Fraction = Annotated[float, AtLeast(0, "0.9, for example"), Below(1, "0.9, for example")]


class LayerWise(Optimizer):
    """Updates one parameter after the other, each from its own gradient and state alone.

    So parameters may be shared out to several optimizers of the kind (the shards of a parameter server) and the numbers
    stay the same to the last bit. A parameter without a gradient stays as it is. Nothing waits for a GPU.
    """

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        """ValueError for defaults outside of the bounds that the class's own constructor declares."""
        check(type(self), defaults, KEY)
        super().__init__(params, defaults)

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
