"""The clock of a split model: the planner's price where nothing is drawn, and DistBelief's curve where much is."""

import math

import pytest

from scalebook.training.engine.rules.clock_settings import ClockSettings, Distribution, Link
from scalebook.training.pricing.layers import Layer
from scalebook.training.pricing.links import Network
from scalebook.training.pricing.profile import Profile
from scalebook.training.pricing.split_clock import SplitClock
from scalebook.training.pricing.splits import Split, price

GRADIENT_S = 0.12
LINK = Link(1e-4, 1e8)


def layers(count: int = 4, width: int = 512, samples: int = 64) -> list[Layer]:
    """Pairs of equal seconds, which make up GRADIENT_S, and a head that nothing divides."""
    nbytes, each_s = 4.0 * width * samples, GRADIENT_S / (count + 1)
    pairs = [
        Layer(f"{n}", each_s / 3, 2 * each_s / 3, nbytes, 32.0 * width**2, 6 * nbytes, "pair") for n in range(count)
    ]
    return [*pairs, Layer("head", each_s / 3, 2 * each_s / 3, 40.0 * samples, 40.0 * width)]


def clock(split: Split, gradient_s: float | Distribution = GRADIENT_S, link: Link = LINK, **more: object) -> SplitClock:
    made = SplitClock(ClockSettings(gradient_s, link=link, **more), split, seed=5)  # type: ignore[arg-type]
    made.set_layers(layers(), 64)
    return made


SPLITS = [
    Split(),
    Split(tensor=4),
    Split(shard=4),
    Split(data=4),
    Split(tensor=2, shard=2, data=2),
    Split(stages=4, microbatches=8),
    Split(stages=2, data=2, microbatches=4, schedule="gpipe"),
    Split(tensor=2, stages=2, microbatches=4),
]


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.words)
@pytest.mark.parametrize("stragglers", [{}, {0: 2.0}], ids=["alike", "one slow"])
def test_where_nothing_is_drawn_an_update_takes_what_the_planner_says(
    split: Split, stragglers: dict[int, float]
) -> None:
    weights = sum(layer.parameter_bytes for layer in layers())
    profile = Profile(GRADIENT_S, 64, weights, weights, stragglers=stragglers)
    planned = price(layers(), split, profile, Network(LINK))
    made = clock(split, stragglers=stragglers)
    for updates in (1, 2, 3):
        took = made.update()
        if split.stages == 1 or not stragglers:  # of a pipeline the planner slows all stages as the slowest
            assert took.seconds == pytest.approx(planned.seconds)
        else:
            assert GRADIENT_S / 4 < took.seconds < planned.seconds
        assert made.time_s == pytest.approx(updates * took.seconds)
    for worker, reasons in enumerate(zip(took.computing, took.bubble, took.uneven, took.link, strict=True)):
        assert sum(reasons) == pytest.approx(took.seconds), worker
        assert min(reasons) >= 0


def test_a_worker_waits_for_the_slowest_the_pipeline_and_the_link() -> None:
    alone = Link()
    slow = clock(Split(tensor=2), link=alone, stragglers={1: 3.0}).update()
    base_s = GRADIENT_S * (4 / 5 / 2 + 1 / 5)
    assert slow.computing == pytest.approx((base_s, 3 * base_s))
    assert slow.uneven == pytest.approx((2 * base_s, 0.0), abs=1e-12)
    assert (slow.bubble, slow.link) == ((0.0, 0.0), (0.0, 0.0))
    sums_s = clock(Split(tensor=2)).update().link
    nbytes = 4.0 * 512 * 64
    assert sums_s[0] == sums_s[1] == pytest.approx(7 * (2 * 1e-4 + nbytes / 1e8)), "a first layer hands nothing back"
    idle = clock(Split(stages=5, microbatches=5), link=alone).update()
    assert idle.seconds * 4 / 9 == pytest.approx(idle.bubble[2]), "(K - 1) / (m + K - 1)"
    assert (max(idle.uneven), max(idle.link)) == pytest.approx((0, 0), abs=1e-12)
    uneven = clock(Split(stages=2, microbatches=5), link=alone).update()
    assert uneven.bubble[1] > uneven.bubble[0] > 0 == max(uneven.link), "three layers and two"
    assert uneven.uneven[1] > 0


def test_draws_are_a_worker_s_own_and_follow_the_seed() -> None:
    drawn = Distribution("exponential", GRADIENT_S)
    first, second = (clock(Split(tensor=8), drawn, Link()) for _ in range(2))
    seconds = [first.update().seconds for _ in range(400)]
    assert seconds == [second.update().seconds for _ in range(400)]
    base_s = GRADIENT_S * (4 / 5 / 8 + 1 / 5)
    assert sum(seconds) / 400 == pytest.approx(base_s * sum(1 / n for n in range(1, 9)), rel=0.05), "H_8 of the mean"
    second.resume(1.0)
    assert second.update().seconds not in seconds


def test_distbelief_s_shape_a_speed_up_that_rises_peaks_and_falls() -> None:
    """A fully connected model on a slow link, by machines with exponential times; Dean et al. 2012, figure 3."""
    drawn = Distribution("exponential", 1.0, None)

    def updates_per_s(machines: int, link: Link) -> float:
        made = SplitClock(ClockSettings(drawn, link=link), Split(tensor=machines), seed=1)
        made.set_layers([Layer(f"{n}", 1 / 12, 1 / 6, 2e5, 1e7, kind="column") for n in range(4)], 64)
        for _ in range(60):
            made.update()
        return 60 / made.time_s

    slow = [updates_per_s(machines, Link(1e-2, 1.25e7)) for machines in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    best = slow.index(max(slow))
    assert 1 <= best <= 5
    assert slow[: best + 1] == sorted(slow[: best + 1])
    assert slow[best:] == sorted(slow[best:], reverse=True)
    assert slow[-1] < 0.9 * max(slow), slow
    assert math.isclose(updates_per_s(81, Link()) / slow[0], 81 / 4.98, rel_tol=0.15), "81 / H_81: a link without limit"
