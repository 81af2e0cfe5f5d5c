"""Against algorithm 2 of arXiv 1904.00962, written out again in numpy."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from scalebook.training.zoo.optimizers import LAMB
from tests.training.zoo.optimizers.steps import Array, assert_equal, gradients, layers, rising, taken

STEPS = 12
BETAS, EPS, DECAY = (0.8, 0.95), 1e-6, 0.05


def algorithm_2(rates: Callable[[int], float], vectors: bool, decay: float = DECAY) -> list[Array]:
    """`vectors`: whether what has at most one dimension is a layer as any other."""
    found = layers()
    means, squares = [np.zeros_like(one) for one in found], [np.zeros_like(one) for one in found]
    for t in range(1, STEPS + 1):
        for i, gradient in enumerate(gradients(t - 1)):
            means[i] = BETAS[0] * means[i] + (1 - BETAS[0]) * gradient
            squares[i] = BETAS[1] * squares[i] + (1 - BETAS[1]) * gradient**2
            update = means[i] / (1 - BETAS[0] ** t) / (np.sqrt(squares[i] / (1 - BETAS[1] ** t)) + EPS)
            scale = 1.0
            if vectors or found[i].ndim > 1:
                update = update + decay * found[i]
                size, length = np.sqrt((found[i] ** 2).sum()), np.sqrt((update**2).sum())
                scale = size / length if size > 0 and length > 0 else 1.0
            found[i] = found[i] - rates(t - 1) * scale * update
    return found


@pytest.mark.parametrize("decay", [DECAY, 0.0])
@pytest.mark.parametrize("vectors", [True, False])
def test_algorithm_2_with_bias_correction(vectors: bool, decay: float) -> None:
    """Layers of zeros, gradients of zeros, and a rising learning rate are among the steps."""
    found = taken(lambda p: LAMB(p, 1.0, BETAS, EPS, decay, adapt_vectors=vectors), STEPS, rising)
    assert_equal(found, algorithm_2(rising, vectors, decay))


def test_the_first_step_has_the_layers_own_norm_times_the_learning_rate() -> None:
    parameter = Parameter(torch.full((2, 2), 3.0, dtype=torch.float64))
    parameter.grad = torch.full((2, 2), 0.5, dtype=torch.float64)
    optimizer = LAMB([parameter], lr=0.1, weight_decay=0.1)
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), torch.full((2, 2), 2.7, dtype=torch.float64))
    assert set(optimizer.state[parameter]) == {"step", "exp_avg", "exp_avg_sq"}
    assert torch.equal(parameter.grad, torch.full((2, 2), 0.5, dtype=torch.float64))


def test_vectors_are_stepped_as_adam_steps_them() -> None:
    ours, theirs = (Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)) for _ in range(2))
    lamb, adam = LAMB([ours], lr=0.1, eps=1e-8, weight_decay=0.3), torch.optim.Adam([theirs], lr=0.1)
    for step in range(5):
        for parameter, optimizer in ((ours, lamb), (theirs, adam)):
            parameter.grad = torch.tensor(gradients(step)[1])
            optimizer.step()
    torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-12, atol=1e-14)


def test_a_resumed_optimizer_goes_on_as_if_nothing_had_happened() -> None:
    whole, again = (Parameter(torch.tensor(layers()[0])) for _ in range(2))
    first, second = LAMB([whole], lr=0.1), LAMB([again], lr=0.1)
    for step in range(6):
        whole.grad = torch.tensor(gradients(step)[0])
        first.step()
        if step == 2:
            again.data = whole.detach().clone()
            second.load_state_dict(copy.deepcopy(first.state_dict()))
        if step > 2:
            again.grad = torch.tensor(gradients(step)[0])
            second.step()
    assert torch.equal(whole, again)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"lr": -1.0}, "optimizer.init_args.lr: -1.0 is less than 0"),
        ({"betas": (0.9, 1.0)}, "optimizer.init_args.betas: 1.0 is not below 1"),
        ({"eps": -1.0}, "optimizer.init_args.eps: -1.0 is less than 0"),
        ({"weight_decay": -1.0}, "optimizer.init_args.weight_decay: -1.0 is less than 0"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LAMB([Parameter(torch.ones(1))], **arguments)  # type: ignore[arg-type]  # one of them by name
