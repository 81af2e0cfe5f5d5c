"""LAMB: Adam with a rate of its own for each layer (You et al. 2020)."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim.optimizer import ParamsT
from typing_extensions import override

from scalebook.training.zoo.optimizers.layerwise import Fraction, LayerWise, NonNegativeFloat, is_vector, ratio


class LAMB(LayerWise):
    """Adam whose step in each layer has the layer's own norm, times the learning rate (arXiv 1904.00962, algorithm 2).

    With gradient g, weights x, weight decay d and learning rate r, in step t (from 1) and for each layer,

        m <- beta1 m + (1 - beta1) g,          v <- beta2 v + (1 - beta2) g^2
        u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + d x
        x <- x - r ||x|| / ||u|| u

    which is the paper's with phi(z) = z. Where ||x|| or ||u|| is 0 the quotient is 1. As in the authors' code biases
    and the parameters of normalisations have no decay and a quotient of 1, unless `adapt_vectors`, which is algorithm 2
    to the letter.

    Args:
        params: Parameters, or param groups.
        lr: Learning rate r: the share of its own norm by which a layer moves in a step.
        betas: How much of the running means of gradient and squared gradient each step keeps.
        eps: Added to the root of the mean squared gradient.
        weight_decay: Weight decay d; it is part of the update that is scaled.
        adapt_vectors: Whether biases and normalisations are scaled and decay too, as in algorithm 2.
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
