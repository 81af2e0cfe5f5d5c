"""LARS: stochastic gradient descent with a rate of its own for each layer (You, Gitman and Ginsburg 2017)."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim.optimizer import ParamsT
from typing_extensions import override

from scalebook.training.engine.rules.bounds import PositiveFloat
from scalebook.training.zoo.optimizers.layerwise import Fraction, LayerWise, NonNegativeFloat, is_vector, ratio


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
        lr: Learning rate r. It is larger than SGD's, because a step is a multiple of `trust_coefficient`.
        momentum: Momentum m: the share of the last update that the next one begins with.
        weight_decay: L2 penalty b; its gradient is part of what the local rate scales.
        trust_coefficient: Share of its own norm by which a layer moves at a learning rate of 1.
        rate_in_momentum: Whether the momentum is one of updates, the learning rate included, as in algorithm 1.
        adapt_vectors: Whether biases and normalisations have a local rate and weight decay too, as in algorithm 1.
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
