"""What a virtual clock draws, and how long what queues takes."""

import random
import statistics

import pytest

from scalebook.training.engine.rules.clock_settings import ClockSettings, Distribution, Link
from scalebook.training.engine.sim import Line, SimulatedClock
from scalebook.training.engine.sim.sim_clock import Draws
from scalebook.training.engine.worker_clock import Steps, Until


@pytest.mark.parametrize(
    ("of", "cv"),
    [
        (Distribution("uniform", 2.0, 0.3), 0.3),
        (Distribution("exponential", 2.0), 1.0),
        (Distribution("lognormal", 2.0, 0.5), 0.5),
        (Distribution("gamma", 2.0, 0.5), 0.5),
        (Distribution("lognormal", 2.0, 0.0), 0.0),
        (Distribution("gamma", 2.0, 0.0), 0.0),
        (Distribution("gamma", 0.0, 0.5), None),
        (Distribution("lognormal", 0.0, 0.5), None),
        (Distribution("recorded", 2.0, 0.5, "a run", None, [1.0, 3.0]), 0.5),
    ],
)
def test_draws_have_the_mean_and_the_spread(of: Distribution, cv: float | None) -> None:
    draws = Draws(seed=3)
    drawn = [draws.value(of, "gradient", 0) for _ in range(40_000)]
    assert min(drawn) >= 0
    assert statistics.fmean(drawn) == pytest.approx(of.mean, rel=0.02)
    if cv is not None:
        assert statistics.stdev(drawn) / of.mean == pytest.approx(cv, rel=0.03, abs=1e-12)


def test_the_order_of_asking_changes_nothing() -> None:
    of, first, second = Distribution("gamma", 1.0, 0.5), Draws(7), Draws(7)
    in_turn = [[first.value(of, "gradient", worker) for worker in range(3)] for _ in range(5)]
    one_by_one = [[second.value(of, "gradient", worker) for _ in range(5)] for worker in (2, 0, 1)]
    assert [list(row) for row in zip(*in_turn, strict=True)] == [one_by_one[1], one_by_one[2], one_by_one[0]]
    assert second.value(of, "server", 0) != Draws(7).value(of, "gradient", 0)
    assert Draws(8).value(of, "gradient", 0) != Draws(7).value(of, "gradient", 0)


def test_a_queue_with_memoryless_arrivals_waits_as_m_d_1() -> None:
    # Pollaczek-Khinchine for a constant service time s at load r: the mean wait is r s / (2 (1 - r))
    for load in (0.5, 0.8):
        draw, line, now, waits = random.Random(5), Line(), 0.0, []
        for _ in range(200_000):
            now += draw.expovariate(load)
            waits.append(line.serve(now, 1.0) - 1.0 - now)
        assert statistics.fmean(waits) == pytest.approx(load / (2 * (1 - load)), rel=0.04)
        assert line.busy_s == 200_000


def seconds(clock: SimulatedClock, steps: Steps[None]) -> float:
    """What the steps take when nobody else does anything."""
    began = clock.time_s
    for step in steps:
        assert isinstance(step, Until)
        assert step.at_s > clock.time_s
        clock.time_s = step.at_s
    return clock.time_s - began


def test_the_slower_link_decides() -> None:
    settings = ClockSettings(
        1.0, server_s=0.5, link=Link(0.25, 100.0), links={1: Link(0.25, 1000.0)}, server_link=Link(0.125, 200.0)
    )
    clock = SimulatedClock(settings, workers=2, shards=3)
    assert seconds(clock, clock.sends(0, 400)) == 0.25 + 0.125 + 4.0 + 0.5  # its own link; each shard has served it
    assert seconds(clock, clock.sends(1, 400)) == 0.25 + 0.125 + 2.0 + 0.5  # the servers' link
    assert seconds(clock, clock.receives(0, 400)) == 4.0 + 0.25 + 0.125
    assert [line.busy_s for line in clock.servers] == [1.0] * 3


def test_both_directions_are_free_at_the_same_time() -> None:
    clock = SimulatedClock(ClockSettings(1.0, server_link=Link(bandwidth=100.0)), workers=4)
    ends = [next(steps) for steps in (clock.sends(0, 100), clock.sends(1, 100), clock.receives(2, 100))]
    assert ends == [Until(1.0), Until(2.0), Until(1.0)]


def test_what_takes_no_time_is_no_step() -> None:
    clock = SimulatedClock(ClockSettings(1.0), workers=1)
    assert list(clock.sends(0, 10**9)) == []
    clock.play(clock.receives(0, 10**9))  # or it would refuse to wait
    assert clock.now() == 0.0


def test_stragglers_take_longer() -> None:
    clock = SimulatedClock(ClockSettings(2.0, stragglers={1: 1.5}), workers=2)
    assert [clock.gradient_s(worker) for worker in (0, 1)] == [2.0, 3.0]
