"""Connections that share a link, against what theory and a real link say of them."""

import heapq
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from scalebook.training.planning.declared import DeclaredBytes
from scalebook.training.planning.links import NETWORKS
from scalebook.training.planning.play import play
from scalebook.training.planning.profile import Profile
from scalebook.training.ps.clock import Until
from scalebook.training.ps.policy.clock import ClockSettings, Distribution, Link
from tests.training.planning.sharing import closed_form

BYTES: Final = 1e6
ALONE_S: Final = 1.0
SHARED: Final = Link(bandwidth=BYTES / ALONE_S)
"""Of a transfer alone."""
MODEL: Final = 2_678_824
WIRE_S: Final = MODEL / 117.5e6


def ends(begin_s: Sequence[float], link: Link, server_link: Link, seed: int = 0) -> list[float]:
    """When pushes that workers begin at these times have been served."""
    clock = DeclaredBytes(ClockSettings(0.0, link=link, server_link=server_link), len(begin_s), 1, seed, BYTES, 0)
    agenda = [(at_s, worker) for worker, at_s in enumerate(begin_s)]
    steps = [clock.sends(worker, 0) for worker in range(len(begin_s))]
    later: dict[int, Callable[[], float]] = {}
    done = [0.0] * len(begin_s)
    while agenda:
        clock.time_s, worker = heapq.heappop(agenda)
        if worker in later and (later_s := later[worker]()) > clock.time_s:
            heapq.heappush(agenda, (later_s, worker))
            continue
        later.pop(worker, None)
        try:
            step = next(steps[worker])
            assert isinstance(step, Until)
            heapq.heappush(agenda, (step.at_s, worker))
            if step.later is not None:
                later[worker] = step.later
        except StopIteration:
            done[worker] = clock.time_s
    return done


@pytest.mark.parametrize("seed", range(5))
def test_a_transfer_alone_takes_its_bytes(seed: int) -> None:
    assert ends([0.0], SHARED, SHARED, seed) == [pytest.approx(ALONE_S, rel=1e-9)]
    slower = Link(latency_s=0.25, bandwidth=BYTES / 3)
    assert ends([0.0], slower, SHARED, seed) == [pytest.approx(3.25, rel=1e-9)]


@pytest.mark.parametrize("seed", range(5))
def test_two_share_a_link_and_lose_nothing_of_it(seed: int) -> None:
    """One after the other the first would end after 1 s. Of two that share evenly, the second half a second later,
    it ends after 1.5 s."""
    first, second = ends([0.0, 0.5], SHARED, SHARED, seed)
    assert max(first, second) == pytest.approx(2.0, rel=1e-9)
    assert min(first, second) > 1.1


def test_shares_are_even_on_the_average() -> None:
    """Of two at once each is the first as often. It ends after 1 s if it has all, after 2 s if it has half."""
    firsts = [ends([0.0, 0.0], SHARED, SHARED, seed) for seed in range(200)]
    assert sum(one < other for one, other in firsts) == pytest.approx(100, abs=25)
    assert 1.5 < sum(min(pair) for pair in firsts) / 200 < 1.9


def test_who_has_a_slow_link_takes_little_of_a_fast_one() -> None:
    quarter = Link(bandwidth=BYTES / 4)
    assert ends([0.0, 0.3, 0.6, 0.9], quarter, Link(bandwidth=BYTES * 10)) == [
        pytest.approx(begun_s + 4.0, rel=0.05) for begun_s in (0.0, 0.3, 0.6, 0.9)
    ]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_memoryless_workers_that_share_a_link(workers: int) -> None:
    """Uneven shares, of which who is first takes more, lie up to a tenth above; first come first served lies 1.35
    times above for two."""
    profile = Profile(Distribution("exponential", 0.006), 1, MODEL, MODEL, network=NETWORKS["1gbe"])
    exact = closed_form(workers, 0.006 + 100e-6, WIRE_S)
    assert play(profile, workers, gradients=2000).updates_per_s / exact == pytest.approx(1.05, abs=0.08)


def test_two_drift_apart_and_three_meet() -> None:
    """As connections of TCP do at 1 Gbit/s: 18.7 updates/s of one, 37.5 of two, 31 of three, 35 of four."""
    profile = Profile(0.005, 1, MODEL, MODEL, 0.001, network=NETWORKS["1gbe"])
    one, two, three, four = (play(profile, workers, gradients=2000).updates_per_s for workers in (1, 2, 3, 4))
    assert two == pytest.approx(2 * one, rel=0.01)
    assert three < two < 1 / WIRE_S
    assert three < four < 0.9 / WIRE_S
