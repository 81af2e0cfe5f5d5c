import pytest
import torch

from scalebook.training.engine.rules.damping import (
    DAMPINGS,
    DelayCompensation,
    DropAbove,
    Inverse,
    NoDamping,
    make_damping,
)
from tests.training.engine.refusing import refused


def test_none_changes_nothing() -> None:
    damping = NoDamping()
    assert damping.accepts(10**6)
    assert damping.rate([0, 50]) == 1.0
    assert not damping.compensates


@pytest.mark.parametrize(
    ("stalenesses", "rate"), [([0], 1.0), ([1], 1.0), ([4], 0.25), ([0, 1], 1.0), ([1, 2, 3], 0.5), ([0, 5], 0.4)]
)
def test_inverse_divides_by_the_mean_staleness(stalenesses: list[int], rate: float) -> None:
    assert Inverse().rate(stalenesses) == rate
    assert Inverse().accepts(99)


def test_drop_above_takes_the_limit_itself() -> None:
    assert [DropAbove(2).accepts(staleness) for staleness in range(5)] == [True, True, True, False, False]
    assert [DropAbove(0).accepts(staleness) for staleness in range(2)] == [True, False]
    assert DropAbove(2).rate([2]) == 1.0


def tensors(*rows: list[float]) -> list[torch.Tensor]:
    return [torch.tensor(row, dtype=torch.float64) for row in rows]


def test_constant_compensation_by_hand() -> None:
    gradient, newest, base = tensors([1.0, -2.0, 3.0], [0.5, 1.0, 1.0], [0.0, 2.0, 1.0])
    out = torch.empty_like(gradient)
    DelayCompensation(strength=0.1).compensate(gradient, newest, base, None, out)
    torch.testing.assert_close(out, tensors([1.0 + 0.1 * 1 * 0.5, -2.0 + 0.1 * 4 * -1.0, 3.0])[0], rtol=1e-15, atol=0)
    assert gradient.tolist() == [1.0, -2.0, 3.0]


def test_it_is_exact_where_the_squared_gradient_is_the_hessian() -> None:
    # f(w) = -log(a - w) has the gradient 1/(a - w) and the Hessian 1/(a - w)^2, its square: with strength 1 the
    # correction is the first Taylor term, but what remains has dtype second order in the distance
    weight, moved = tensors([0.0, 0.5], [1e-3, 0.5 + 1e-3])
    stale, fresh = 1 / (2 - weight), 1 / (2 - moved)
    out = torch.empty_like(stale)
    DelayCompensation(strength=1.0).compensate(stale, moved, weight, None, out)
    assert (fresh - stale).abs().max() > 2e-4
    assert (fresh - out).abs().max() < 4e-7


def test_adaptive_compensation_keeps_a_running_mean_of_squares() -> None:
    damping = DelayCompensation(strength=2.0, adaptive=True, decay=0.75, epsilon=1e-7)
    gradient, newest, base, mean_square = tensors([2.0, 0.0], [1.5, 1.0], [1.0, 0.0], [0.0, 0.0])
    out = torch.empty_like(gradient)
    damping.compensate(gradient, newest, base, mean_square, out)
    assert mean_square.tolist() == [1.0, 0.0]
    assert out.tolist() == pytest.approx([2.0 + 2.0 * 4.0 * 0.5 / (1.0 + 1e-7) ** 0.5, 0.0], rel=1e-12)
    damping.compensate(gradient, newest, base, mean_square, out)
    assert mean_square.tolist() == [1.75, 0.0]
    assert out[0].item() == pytest.approx(2.0 + 2.0 * 4.0 * 0.5 / (1.75 + 1e-7) ** 0.5, rel=1e-12)


@pytest.mark.parametrize("adaptive", [False, True])
def test_it_may_write_over_the_gradient(adaptive: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    gradient, newest, base = torch.randn(3, 40, generator=generator)
    damping = DelayCompensation(strength=0.5, adaptive=adaptive)
    squares = [torch.zeros(40) if adaptive else None for _ in range(2)]
    out = torch.empty(40)
    damping.compensate(gradient, newest, base, squares[0], out)
    damping.compensate(gradient, newest, base, squares[1], gradient)
    assert torch.equal(gradient, out)


def test_without_staleness_or_strength_the_gradient_stays() -> None:
    gradient, newest, base = tensors([1.0, -2.0], [3.0, 4.0], [0.0, 0.0])
    out = torch.empty_like(gradient)
    DelayCompensation().compensate(gradient, newest, newest.clone(), None, out)
    assert torch.equal(out, gradient)
    DelayCompensation(strength=0.0).compensate(gradient, newest, base, None, out)
    assert torch.equal(out, gradient)


@pytest.mark.parametrize(
    ("make", "mistake"),
    [
        (lambda: DropAbove(-1), "out-of-bounds damping.limit"),
        (lambda: DelayCompensation(strength=-0.1), "out-of-bounds damping.strength"),
        (lambda: DelayCompensation(strength=float("nan")), "out-of-bounds damping.strength"),
        (lambda: DelayCompensation(decay=1.0), "out-of-bounds damping.decay"),
        (lambda: DelayCompensation(epsilon=0.0), "out-of-bounds damping.epsilon"),
    ],
)
def test_what_makes_no_sense_is_refused_with_key_and_remedy(make: object, mistake: str) -> None:
    assert callable(make)
    with refused(mistake):
        make()


def test_an_unknown_name_is_refused() -> None:
    with refused("unknown-value damping"):
        make_damping("half")  # type: ignore[arg-type]  # as a YAML file may


def test_a_bare_name_means_the_defaults() -> None:
    assert [make_damping("none"), make_damping("inverse"), make_damping("drop_above")] == [
        NoDamping(),
        Inverse(),
        DropAbove(limit=8),
    ]
    assert make_damping("delay_compensation") == DelayCompensation(0.04, False, 0.95, 1e-7)
    damping = DropAbove(3)
    assert make_damping(damping) is damping
    assert [name for name, kind in DAMPINGS.items() if kind.name == name and kind.compensates] == ["delay_compensation"]
    assert repr(damping) == "DropAbove(limit=3)"
