"""What codecs promise of what they lose: right on the average, or a contraction."""

import pytest
import torch
from torch import Tensor

from scalebook.training.engine.rules.codecs import Bf16, Codec, Fp16, Int8, PowerSgd, Qsgd, RandomK, Sign, TopK
from tests.training.engine.codecs.test_coder import coder

DRAWS, BLOCK = 10_000, 64
VALUES = torch.randn(BLOCK, generator=torch.Generator().manual_seed(1)) * torch.logspace(-3, 1, BLOCK)


def draws(codec: Codec, feedback: bool = False) -> Tensor:
    """[DRAWS, BLOCK]: what the same block of values becomes, each block of one frame drawn by itself."""
    both = coder(codec, [(DRAWS, BLOCK)])
    residual = torch.zeros(both.kept) if feedback else None
    (decoded,) = both.decode(both.encode([VALUES.repeat(DRAWS, 1)], residual, draw=11).frame)
    assert decoded is not None
    return decoded.double()


@pytest.mark.parametrize("levels", [1, 4, 7, 127])
def test_qsgd_is_right_on_the_average(levels: int) -> None:
    """Within 4 standard errors, which follow from how far a value is from its level, and the draw's grain of 2**-16."""
    step = VALUES.double().norm() / levels
    part = (VALUES.abs() / step) % 1
    found = draws(Qsgd(levels, BLOCK))
    assert ((found.mean(0) - VALUES).abs() <= 4 * step * (part * (1 - part) / DRAWS).sqrt() + step * 2**-16).all()


@pytest.mark.parametrize("share", [1 / 64, 0.25])
def test_random_k_is_right_on_the_average(share: float) -> None:
    found = draws(RandomK(share, error_feedback=False))
    assert ((found.mean(0) - VALUES).abs() <= 4 * VALUES.abs() * ((1 / share - 1) / DRAWS) ** 0.5).all()


def test_qsgd_varies_as_little_as_its_paper_says() -> None:
    for levels in (1, 4, 127):
        codec = Qsgd(levels, BLOCK)
        squares = (draws(codec) - VALUES).square().sum(1)
        assert 0 < squares.mean() <= codec.variance * VALUES.double().square().sum()


def test_drawn_contractions_hold_on_the_average() -> None:
    size = VALUES.double().square().sum()
    quantised, chosen = Qsgd(1, BLOCK, error_feedback=True), RandomK(0.25)
    for codec, left in ((quantised, quantised.variance / (1 + quantised.variance)), (chosen, 0.75)):
        lost = (draws(codec, feedback=True) - VALUES).square().sum(1).mean()
        assert lost <= left * size * 1.02  # of 10,000 draws


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_others_are_contractions_each_time(scale: float) -> None:
    values = VALUES.view(8, 8) * scale
    size, sum_ = values.double().square().sum(), values.double().abs().sum()
    left: dict[Codec, float | Tensor] = {
        Bf16(error_feedback=True): 2.0**-16,
        Fp16(error_feedback=True): 2.0**-20,
        Int8(block=BLOCK): BLOCK * (values.abs().max() / 254) ** 2 / size * 1.01,
        Sign(block=BLOCK): 1 - sum_**2 / (BLOCK * size) + 1e-6,
        TopK(0.25): 1 - 0.25,
        PowerSgd(2): 1.0,
    }
    for codec, most in left.items():
        both = coder(codec, [(8, 8)])
        (decoded,) = both.decode(both.encode([values], torch.zeros(both.kept)).frame)
        assert decoded is not None
        assert (decoded.double() - values).square().sum() <= most * size, codec


def test_power_iteration_finds_a_matrix_of_its_rank_and_comes_closer_with_each_push() -> None:
    random = torch.Generator().manual_seed(2)
    thin = torch.randn(20, 2, generator=random) @ torch.randn(2, 30, generator=random)
    both = coder(PowerSgd(2, error_feedback=False), [(20, 30)])
    (found,) = both.decode(both.encode([thin], None).frame)
    assert found is not None
    assert torch.allclose(found, thin, atol=1e-4)
    whole = torch.randn(20, 30, generator=random)
    best = torch.linalg.svdvals(whole)[2:].norm()
    warm, errors = coder(PowerSgd(2), [(20, 30)]), []
    residual = torch.zeros(warm.kept)
    for _ in range(30):
        residual[:600] = 0  # the same matrix again and again; only the iteration goes on
        frame, now = warm.encode([whole], residual)
        (found,) = warm.decode(frame)
        assert found is not None
        assert now is not None
        errors.append(float((found - whole).norm()))
        residual = now
    assert errors[-1] < errors[0]
    assert errors[-1] <= float(best) * 1.02
