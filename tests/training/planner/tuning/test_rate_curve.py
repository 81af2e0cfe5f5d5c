"""Range tests whose answer is known."""

import json
import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from scalebook.training.planner.tuning.rate_curve import RateCurve, Suggestion


def curve(
    fall_at: float, rise_at: float, noise: float = 0.05, points: int = 200, diverged: bool = True, seed: int = 3
) -> RateCurve:
    """From 2.3 down to 0.3 around `fall_at` (a logistic in log10 of the rate), up again by powers beyond `rise_at`."""
    draw = random.Random(seed)  # a test's noise
    rates = [1e-5 * 10 ** (6 * i / (points - 1)) for i in range(points)]
    losses = [
        2.3
        - 2 / (1 + math.exp(-4 * math.log10(rate / fall_at)))
        + 0.5 * max(0.0, rate / rise_at - 1) ** 2
        + draw.gauss(0, noise)
        for rate in rates
    ]
    cut = next((i for i, loss in enumerate(losses) if diverged and loss > 4.5), points)
    return RateCurve(rates[:cut], losses[:cut], diverged)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
def test_the_steepest_fall_and_the_end_of_the_valley(noise: float) -> None:
    found = curve(0.01, 0.5, noise).suggestion()
    assert found.steepest is not None
    assert found.largest is not None
    assert 0.005 < found.steepest < 0.02
    assert 0.25 < found.largest < 1.2


def test_a_curve_that_only_falls_has_no_largest_rate() -> None:
    told = curve(0.01, 1e9, diverged=False)
    found = told.suggestion()
    assert found.largest is None
    assert found.steepest == pytest.approx(0.01, rel=0.6)
    assert "training still works at 10, the highest rate tested" in found.sentence(told)


def test_noise_alone_suggests_nothing() -> None:
    told = curve(1e9, 1e9, noise=0.3, diverged=False)
    assert told.suggestion() == Suggestion(None, None)
    assert "no suggestion: the loss does not fall between 1e-05 and 10. Test higher" in told.suggestion().sentence(told)
    rising = curve(1e9, 1e-5, noise=0.3)
    assert rising.suggestion().steepest is None
    assert "Test lower rates, or use more updates." in rising.suggestion().sentence(rising)


def test_too_few_points_suggest_nothing() -> None:
    assert RateCurve([0.1 * i for i in range(1, 9)], [1.0 / i for i in range(1, 9)], True).suggestion().steepest is None


def test_smoothing_keeps_a_line_and_the_ends() -> None:
    line = RateCurve([10.0**i for i in range(100)], [float(i) for i in range(100)], False)
    assert line.smoothed() == pytest.approx(line.losses)


def test_what_is_written_has_the_curve_and_the_suggestion() -> None:
    drawn = curve(0.01, 0.5)
    content = json.loads(json.dumps(drawn.as_dict()))
    assert RateCurve(content["rates"], content["losses"], content["diverged"]) == drawn
    assert content["steepest"] == drawn.suggestion().steepest


@pytest.mark.parametrize("fall_at", [1e-3, 1e-2, 5e-2])
def test_noise_before_the_fall_is_not_taken_for_it(fall_at: float) -> None:
    """With noise of 60 % of the fall's half, the noise is steeper than the curve in one test of thirty."""
    found = [curve(fall_at, 0.5, 0.6, seed=seed).suggestion().steepest for seed in range(60)]
    suggested = [rate for rate in found if rate is not None]
    assert len(suggested) > 55
    assert sum(fall_at / 5 < rate < fall_at * 5 for rate in suggested) >= len(suggested) - 2
    assert min(suggested) > 1e-4, "not the left edge, which has the fewest points to smooth over"


@pytest.mark.parametrize("fall_at", [1e-3, 1e-2])
def test_what_one_of_several_workers_sees_is_enough(fall_at: float) -> None:
    """A third of the updates, with batches whose loss is 40 % off: most tests found a rate far below the fall."""
    found = []
    for seed in range(40):
        draw = random.Random(seed)
        whole = curve(fall_at, 0.5, 0.0)
        seen = sorted(draw.sample(range(len(whole.rates)), len(whole.rates) // 3))
        losses = [whole.losses[i] * math.exp(draw.gauss(0, 0.4)) for i in seen]
        found.append(RateCurve([whole.rates[i] for i in seen], losses, True).suggestion().steepest)
    suggested = [rate for rate in found if rate is not None]
    assert len(suggested) > 36
    assert sum(fall_at / 6 < rate < fall_at * 6 for rate in suggested) >= len(suggested) - 1


@pytest.mark.parametrize("points", [60, 200])
def test_a_high_loss_of_the_first_batches_is_no_fall(points: int) -> None:
    drawn = curve(0.01, 0.5, 0.1, points)
    high = [loss + above for loss, above in zip(drawn.losses, (5.0, 3.0, 1.0), strict=False)]
    found = RateCurve(drawn.rates, [*high, *drawn.losses[3:]], drawn.diverged).suggestion()
    assert found.steepest == pytest.approx(0.01, rel=0.6)
    assert found.edge == ""


@pytest.mark.parametrize(
    ("fall_at", "rise_at", "edge", "words"),
    [
        (
            1e-5,
            1.0,
            "lowest",
            (
                "no suggestion: the loss falls fastest at the edge of the range, near 1e-05, the lowest rate tested. "
                "Test lower"
            ),
        ),
        (
            10.0,
            1e9,
            "highest",
            ". The best rate is at an edge of the range, near 10, the highest rate tested. Test higher rates",
        ),
        (0.01, 0.5, "", "the largest rate that still trains is 0.6"),
    ],
)
def test_a_best_rate_at_an_edge_is_said(fall_at: float, rise_at: float, edge: str, words: str) -> None:
    drawn = curve(fall_at, rise_at, diverged=rise_at < 1e9)
    assert drawn.suggestion().edge == edge
    assert words in drawn.suggestion().sentence(drawn)


@pytest.mark.parametrize("seed", range(6))
def test_the_left_edge_is_never_proposed(seed: int) -> None:
    """The loss falls fastest at the lowest rate, or below it, so no rate of the range is known to be a good one."""
    assert curve(1e-5, 0.5, seed=seed).suggestion().steepest is None


@pytest.mark.parametrize("ratio", [0.1, 1.0])
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, partial(torch.optim.SGD, momentum=0.9)])
def test_a_regressor_with_two_parameter_groups(ratio: float, optimizer: Callable[..., Any]) -> None:
    """With batches of 32, each test proposes a rate that trains, or none: never one at the left edge of the range."""
    found = [regressor(optimizer, ratio, seed).suggestion() for seed in range(5)]
    rates = [one.steepest for one in found if one.steepest is not None]
    assert len(rates) >= 4
    assert all(5e-4 < rate < 0.1 for rate in rates), rates
    assert all(one.largest is None or one.steepest is None or one.largest >= one.steepest for one in found)


def regressor(optimizer: Callable[..., Any], ratio: float, seed: int, updates: int = 200) -> RateCurve:
    """The range test of a small network whose head has `ratio` times the rate of its body."""
    chance = torch.Generator().manual_seed(seed)
    inputs = torch.randn(2000, 8, generator=chance)
    targets = torch.sin(2 * inputs[:, :1]) + inputs[:, 1:2] * inputs[:, 2:3] + 0.5
    targets += 0.1 * torch.randn(2000, 1, generator=chance)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body, head = torch.nn.Linear(8, 64), torch.nn.Linear(64, 1)
    groups = [{"params": [*body.parameters()]}, {"params": [*head.parameters()]}]
    stepping, shares = optimizer(groups, lr=1.0), (1.0, ratio)
    rates = [1e-5 * 10 ** (6 * update / (updates - 1)) for update in range(updates)]
    losses: list[float] = []
    for rate in rates:
        batch = torch.randint(2000, (32,), generator=chance)
        loss = ((head(body(inputs[batch]).relu()) - targets[batch]) ** 2).mean()
        if not math.isfinite(value := loss.item()) or (losses and value > 4 * losses[0]):
            return RateCurve(rates[: len(losses)], losses, True)
        losses.append(value)
        for group, share in zip(stepping.param_groups, shares, strict=True):
            group["lr"] = rate * share
        stepping.zero_grad()
        loss.backward()
        stepping.step()
    return RateCurve(rates, losses, False)
