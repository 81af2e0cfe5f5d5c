"""Against equation 7 and algorithm 1 of arXiv 1708.03888, written out again in numpy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from scalebook.training.zoo.optimizers import LARS
from tests.training.zoo.optimizers.steps import Array, assert_equal, gradients, layers, rising, taken

STEPS = 12
DECAY, MOMENTUM, TRUST = 0.05, 0.9, 0.02


def local_rate(weights: Array, gradient: Array, decay: float) -> float:
    """lambda^l of equation 7; 1 where it has no value."""
    size, slope = np.sqrt((weights**2).sum()), np.sqrt((gradient**2).sum())
    if size == 0 or slope + decay * size == 0:
        return 1.0
    return float(TRUST * size / (slope + decay * size))


def algorithm_1(rates: Callable[[int], float], decay: float = DECAY) -> list[Array]:
    found = layers()
    updates = [np.zeros_like(weights) for weights in found]
    for t in range(STEPS):
        for i, gradient in enumerate(gradients(t)):
            scaled = local_rate(found[i], gradient, decay) * (gradient + decay * found[i])
            updates[i] = MOMENTUM * updates[i] + rates(t) * scaled
            found[i] = found[i] - updates[i]
    return found


def in_wide_use(rates: Callable[[int], float]) -> list[Array]:
    found = layers()
    momenta = [np.zeros_like(weights) for weights in found]
    for t in range(STEPS):
        for i, gradient in enumerate(gradients(t)):
            scaled = gradient
            if found[i].ndim > 1:
                scaled = local_rate(found[i], gradient, DECAY) * (gradient + DECAY * found[i])
            momenta[i] = MOMENTUM * momenta[i] + scaled
            found[i] = found[i] - rates(t) * momenta[i]
    return found


def make(letter: bool = False, decay: float = DECAY) -> Callable[[list[Parameter]], LARS]:
    def made(parameters: list[Parameter]) -> LARS:
        return LARS(
            parameters, 1.0, MOMENTUM, decay, trust_coefficient=TRUST, rate_in_momentum=letter, adapt_vectors=letter
        )

    return made


@pytest.mark.parametrize("decay", [DECAY, 0.0])
def test_algorithm_1_to_the_letter(decay: float) -> None:
    """With a rising learning rate, a layer of zeros, and one whose gradient is zero."""
    assert_equal(taken(make(letter=True, decay=decay), STEPS, rising), algorithm_1(rising, decay))


def test_the_variant_in_wide_use() -> None:
    assert_equal(taken(make(), STEPS, rising), in_wide_use(rising))


def test_the_two_momenta_are_one_at_a_constant_rate_only() -> None:
    def matrices(found: list[Array]) -> list[Array]:
        return [weights for weights in found if weights.ndim > 1]

    constant = taken(make(), STEPS, lambda _: 0.3)
    assert_equal(matrices(constant), matrices(taken(make(letter=True), STEPS, lambda _: 0.3)))
    far = np.abs(matrices(in_wide_use(rising))[0] - matrices(algorithm_1(rising))[0]).max()
    assert far > 1e-4


def test_without_momentum_nothing_is_kept_and_the_gradient_stays() -> None:
    parameter = Parameter(torch.full((2, 2), 3.0, dtype=torch.float64))
    parameter.grad = torch.full((2, 2), 0.5, dtype=torch.float64)
    optimizer = LARS([parameter], lr=2.0, momentum=0.0, trust_coefficient=0.1)
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), torch.full((2, 2), 3.0 - 2.0 * 0.1 * 3.0, dtype=torch.float64))
    assert torch.equal(parameter.grad, torch.full((2, 2), 0.5, dtype=torch.float64))
    assert dict(optimizer.state[parameter]) == {}


def test_a_step_does_not_depend_on_the_size_of_the_gradient() -> None:
    found = []
    for size in (1e-6, 1.0, 1e6):
        parameter = Parameter(torch.ones(3, 3, dtype=torch.float64))
        parameter.grad = size * torch.arange(9.0, dtype=torch.float64).reshape(3, 3)
        LARS([parameter]).step()
        found.append(parameter.detach())
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=0)
    torch.testing.assert_close(found[2], found[1], rtol=1e-12, atol=0)
    assert float(torch.linalg.vector_norm(found[1] - 1)) == pytest.approx(0.001 * 3)


def test_a_closure_is_evaluated_and_what_has_no_gradient_stays() -> None:
    used, unused = Parameter(torch.ones(2, 2)), Parameter(torch.ones(2, 2))
    optimizer = LARS([used, unused])

    def closure() -> torch.Tensor:
        loss = used.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        return loss.detach()

    assert float(optimizer.step(closure)) == 4.0
    assert bool((used < 1).all())
    assert torch.equal(unused, torch.ones(2, 2))


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("lr", -1.0, "optimizer.init_args.lr: -1.0 is less than 0"),
        ("lr", float("nan"), "optimizer.init_args.lr: nan is less than 0"),
        ("momentum", 1.0, "optimizer.init_args.momentum: 1.0 is not below 1"),
        ("weight_decay", -0.1, "optimizer.init_args.weight_decay: -0.1 is less than 0"),
        ("trust_coefficient", 0.0, "optimizer.init_args.trust_coefficient: 0.0 is not above 0"),
    ],
)
def test_mistakes_are_named(argument: str, value: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LARS([Parameter(torch.ones(1))], **{argument: value})  # type: ignore[arg-type]  # one of them by name


def test_sparse_gradients_are_refused() -> None:
    parameter = Parameter(torch.ones(2, 2))
    parameter.grad = torch.eye(2).to_sparse()
    with pytest.raises(RuntimeError, match="LARS does not support sparse gradients"):
        LARS([parameter]).step()
