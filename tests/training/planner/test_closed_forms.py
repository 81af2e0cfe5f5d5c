"""Points that need no play: a play says the same."""

import math
from dataclasses import replace
from typing import Final

import pytest

from scalebook.training.engine.rules.clock_settings import Distribution, Link
from scalebook.training.engine.rules.local_steps import Downpour, LocalSGD, NoLocalSteps
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.planner.answers import Point
from scalebook.training.planner.closed_forms import ENOUGH, most_gradients, one_worker, saturates, waits_in_queues
from scalebook.training.planner.play import play
from scalebook.training.pricing.links import NETWORKS, Network
from scalebook.training.pricing.profile import Profile

pytestmark = pytest.mark.long

ETHERNET: Final = Profile(Distribution("gamma", 0.18, 0.1), 32, 1e8, 8e7, 0.03, network=NETWORKS["10gbe"])
SERVER: Final = replace(ETHERNET, network=Network(Link(1e-3, 1e9)), server_s=0.05)
SYSTEMS: Final = (ETHERNET, SERVER, replace(ETHERNET, server_s=0.2), replace(SERVER, push_bytes=0, pull_bytes=0))
RATES: Final = (
    "updates_per_s", "samples_per_s", "compute", "communicate", "server_busy", "in_busy", "out_busy",
)  # fmt: skip


def same(closed: Point, played: Point, rel: float = 0.01) -> None:
    for name in RATES:
        assert getattr(closed, name) == pytest.approx(getattr(played, name), rel=rel, abs=1e-3), name


@pytest.mark.parametrize("rule", [Async(), Sync(), Bounded(2)])
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("shards", [1, 4])
def test_one_worker_waits_for_nobody(system: Profile, rule: Rule, shards: int) -> None:
    constant = replace(system, gradient_s=0.18, stragglers={0: 1.5})
    closed, played = play(constant, 1, rule, shards), play(constant, 1, rule, shards, gradients=50)
    assert closed == one_worker(32, rule, shards, constant.clock(1, shards), system.push_bytes, system.pull_bytes)
    same(closed, played, rel=1e-6)
    assert (closed.staleness, closed.staleness_p95, closed.dropped, closed.idle) == (0.0, 0, 0.0, played.idle)


def test_one_worker_of_a_rule_with_other_pushes_is_played() -> None:
    clock = ETHERNET.clock(1)
    assert one_worker(32, Softsync(1), 1, clock, 1e8, 1e8) is None
    rare = play(ETHERNET, 1, Async(), local=Downpour(4, 4), gradients=400)
    assert play(ETHERNET, 1, Async(), local=Downpour(4, 4)).updates_per_s == pytest.approx(rare.updates_per_s, rel=0.05)
    drawn = replace(ETHERNET, server_s=Distribution("exponential", 0.03)).clock(1, 4)
    assert one_worker(32, Async(), 4, drawn, 1e8, 1e8) is None, "the largest of four draws"


@pytest.mark.sampled
@pytest.mark.parametrize("system", SYSTEMS)
def test_many_who_saturate_a_resource_are_the_same_as_played(system: Profile) -> None:
    """160 workers, played for thirty gradients each, where it is known beforehand what they get."""
    workers = ENOUGH + 32
    assert saturates(workers, Async(), system.clock(workers), system.push_bytes, system.pull_bytes)
    closed = play(system, workers)
    played = play(system, workers, gradients=30 * workers)
    same(closed, played)
    assert closed.staleness == pytest.approx(played.staleness, rel=0.01)
    assert closed.staleness_p95 == pytest.approx(played.staleness_p95, rel=0.05)
    waiting = [(point.server_queue, point.in_queue, point.out_queue) for point in (closed, played)]
    assert sum(waiting[0]) == pytest.approx(sum(waiting[1]), rel=0.01)


@pytest.mark.sampled
@pytest.mark.parametrize("system", [ETHERNET, SERVER])
def test_rounds_of_queues_grow_by_the_same_with_each_worker(system: Profile) -> None:
    workers = 2 * ENOUGH
    closed, played = play(system, workers, Sync()), play(system, workers, Sync(), gradients=4 * workers)
    assert closed.updates_per_s == pytest.approx(played.updates_per_s, rel=0.01)
    assert closed.samples_per_s == pytest.approx(played.samples_per_s, rel=0.01)
    for name in ("compute", "communicate", "idle", "server_busy", "in_busy", "out_busy"):
        assert getattr(closed, name) == pytest.approx(getattr(played, name), abs=0.03), name
    assert (closed.staleness, closed.dropped) == (0.0, 0.0)


def test_a_round_that_computes_is_played() -> None:
    computing = replace(ETHERNET, gradient_s=Distribution("gamma", 60.0, 0.1))
    clock = computing.clock(ENOUGH)
    assert not waits_in_queues(play(computing, ENOUGH, Sync()), clock)
    assert waits_in_queues(play(ETHERNET, ENOUGH, Sync()), ETHERNET.clock(ENOUGH))


@pytest.mark.thorough
def test_of_workers_with_a_bound_who_saturate_a_link_as_many_updates_come_as_of_fewer() -> None:
    """Some wait for the slowest, so they are fewer than the link allows; played for 24 gradients each."""
    closed, played = play(ETHERNET, 256, Bounded(4)), play(ETHERNET, 160, Bounded(4), gradients=24 * 160)
    assert closed.updates_per_s == pytest.approx(played.updates_per_s, rel=0.05)
    assert closed.updates_per_s < 0.99 * play(ETHERNET, 256).updates_per_s
    assert 0 < closed.idle < 0.15


@pytest.mark.parametrize("rule", [Async(), Sync()])
def test_local_steps_are_played_as_one_long_gradient(rule: Rule) -> None:
    """Their times add up; played one by one beside it."""
    system = replace(ETHERNET, gradient_s=Distribution("gamma", 0.02, 0.2))
    closed = play(system, 8, rule, local=LocalSGD(4))
    played = play(system, 8, rule, local=LocalSGD(4), gradients=3200)
    same(closed, played, rel=0.02)


@pytest.mark.parametrize("rule", [Async(), Sync(), Bounded(2)])
def test_shards_that_serve_for_as_long_are_one(rule: Rule) -> None:
    """A spread of no width is drawn, so that each shard is played."""
    clock = replace(ETHERNET, gradient_s=0.18).clock(8, 4)
    assert isinstance(clock.server_s, float)
    drawn = replace(clock, server_s=Distribution("gamma", clock.server_s, 0.0))
    closed, played = (play(ETHERNET, 8, rule, 4, one, gradients=400) for one in (clock, drawn))
    assert closed == played


def test_what_all_share_bounds_what_workers_make() -> None:
    clock = ETHERNET.clock(1)
    link_s = 1e8 / 1.175e9
    assert most_gradients(NoLocalSteps(), clock, 1e8, 8e7) == pytest.approx(1 / link_s)
    assert most_gradients(Downpour(4, 1), clock, 1e8, 8e7) == pytest.approx(1 / (0.8 * link_s)), (
        "pulls do not get fewer"
    )
    assert most_gradients(LocalSGD(16), clock, 1e8, 8e7) == pytest.approx(16 / link_s)
    assert most_gradients(NoLocalSteps(), Profile(0.1, 1, 1e6, 1e6).clock(1), 1e6, 1e6) == math.inf


def test_workers_who_do_not_saturate_it_are_played() -> None:
    faster = replace(ETHERNET, network=NETWORKS["100gbe"], server_s=0.0)
    assert not saturates(256, Async(), replace(faster, push_bytes=1e6, pull_bytes=1e6).clock(256), 1e6, 1e6)
    clock = ETHERNET.clock(256)
    assert not saturates(256, Sync(), clock, 1e8, 8e7)
    assert not saturates(256, Softsync(4), clock, 1e8, 8e7)
