"""Optimizers with a rate of its own for each layer: LARS, which is SGD so (You, Gitman and Ginsburg 2017), and LAMB,
which is Adam so (You et al. 2020). A layer is one parameter, weights and biases apart.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, Final

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT
from typing_extensions import override

from scalebook.training.engine.rules import AtLeast, Below, PositiveFloat, check_limits

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
        check_limits(type(self), defaults, KEY)
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


class LAMB(LayerWise):
    """Adam whose step in each layer has the layer's own norm, times the learning rate (arXiv 1904.00962, algorithm 2).

    With gradient g, weights x, weight decay d and learning rate r, in step t (from 1) and for each layer,

        m <- beta1 m + (1 - beta1) g,          v <- beta2 v + (1 - beta2) g^2
        u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + d x
        x <- x - r ||x|| / ||u|| u

    which is the paper's with phi(z) = z. Where ||x|| or ||u|| is 0, the quotient is 1. As in the authors' code, biases
    and the parameters of normalisation layers have no decay and a quotient of 1, unless `adapt_vectors` is true, which
    is exactly algorithm 2.

    Args:
        params: Parameters, or param groups.
        lr: Learning rate r: the share of its own norm by which a layer moves in a step.
        betas: How much of the running means of gradient and squared gradient is kept in each step.
        eps: Added to the root of the mean squared gradient.
        weight_decay: Weight decay d, which is part of the update that is scaled.
        adapt_vectors: Whether biases and normalisation layers are also scaled and decayed, as in algorithm 2.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: NonNegativeFloat = 0.001,
        betas: tuple[Fraction, Fraction] = (0.9, 0.999),
        eps: NonNegativeFloat = 1e-6,
        weight_decay: NonNegativeFloat = 0.0,
        adapt_vectors: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "adapt_vectors": adapt_vectors,
        }
        super().__init__(params, defaults)

    @override
    def update(self, parameter: Parameter, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float64)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        (beta1, beta2), steps = group["betas"], float(state["step"])
        mean = state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        step = (mean / (1 - beta1**steps)) / ((square / (1 - beta2**steps)).sqrt_() + group["eps"])
        if group["adapt_vectors"] or not is_vector(parameter):
            step += group["weight_decay"] * parameter
            step *= ratio(torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(step))
        parameter.sub_(group["lr"] * step)


class LARS(LayerWise):
    """Momentum SGD whose step in each layer is proportional to the layer's own norm (arXiv 1708.03888).

    With gradient g, weights w, weight decay b, momentum m and learning rate r the local rate of a layer is (equation 7)

        l = trust_coefficient * ||w|| / (||g|| + b ||w||)

    and its update, in the variant in wide use,

        v <- m v + l (g + b w),    w <- w - r v

    where biases and the parameters of normalisations have l = 1 and b = 0. `rate_in_momentum` and `adapt_vectors` give
    algorithm 1 of the paper to the letter: v <- m v + r l (g + b w), w <- w - v, for every parameter. While the
    learning rate stays the same the two momenta are one; when it rises, as in a warm-up, the variant applies the new
    rate to all of the momentum at once, as torch's SGD does (Goyal et al. 2017, remark 3). Where ||w|| or
    ||g|| + b ||w|| is 0, l is 1.

    Args:
        params: Parameters, or param groups.
        lr: Learning rate r. It must be larger than with SGD, because a step is a multiple of `trust_coefficient`.
        momentum: Momentum m: the share of the last update with which the next update begins.
        weight_decay: L2 penalty b, whose gradient is part of what the local rate scales.
        trust_coefficient: Share of its own norm by which a layer moves at a learning rate of 1.
        rate_in_momentum: Whether the momentum accumulates updates that include the learning rate, as in algorithm 1.
        adapt_vectors: Whether biases and normalisation layers also have a local rate and weight decay, as in algorithm
            1.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: NonNegativeFloat = 1.0,
        momentum: Fraction = 0.9,
        weight_decay: NonNegativeFloat = 0.0,
        trust_coefficient: PositiveFloat = 0.001,
        rate_in_momentum: bool = False,
        adapt_vectors: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
            "rate_in_momentum": rate_in_momentum,
            "adapt_vectors": adapt_vectors,
        }
        super().__init__(params, defaults)

    @override
    def update(self, parameter: Parameter, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        step = gradient
        if group["adapt_vectors"] or not is_vector(parameter):
            decay = group["weight_decay"]
            norm = torch.linalg.vector_norm(parameter)
            local = ratio(group["trust_coefficient"] * norm, torch.linalg.vector_norm(gradient) + decay * norm)
            step = (gradient + decay * parameter) * local
        rate = group["lr"]
        if group["rate_in_momentum"]:
            step, rate = rate * step, 1.0
        if group["momentum"] > 0:
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            step = state["momentum_buffer"].mul_(group["momentum"]).add_(step)
        parameter.sub_(rate * step)
