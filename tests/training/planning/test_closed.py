"""Points that need no play: a play says the same."""

from dataclasses import replace
from typing import Final

import pytest

from scalebook.training.planning.answer import Point
from scalebook.training.planning.closed import PLAYED, one_worker, saturates
from scalebook.training.planning.links import NETWORKS, Network
from scalebook.training.planning.play import play
from scalebook.training.planning.profile import Profile
from scalebook.training.ps.policy.clock import Distribution, Link
from scalebook.training.ps.policy.local import Downpour
from scalebook.training.ps.policy.rules import Async, Bounded, Rule, Softsync, Sync

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


@pytest.mark.parametrize("system", SYSTEMS)
def test_many_who_saturate_a_resource_are_the_same_as_played(system: Profile) -> None:
    """256 workers, played for forty gradients each, where it is known beforehand what they get."""
    workers = 256
    assert saturates(workers, Async(), system.clock(workers), system.push_bytes, system.pull_bytes)
    closed = play(system, workers)
    played = play(system, workers, gradients=40 * workers)
    same(closed, played)
    assert closed.staleness == pytest.approx(played.staleness, rel=0.01)
    assert closed.staleness_p95 == pytest.approx(played.staleness_p95, rel=0.05)
    waiting = [(point.server_queue, point.in_queue, point.out_queue) for point in (closed, played)]
    assert sum(waiting[0]) == pytest.approx(sum(waiting[1]), rel=0.01)


def test_workers_who_do_not_saturate_it_are_played() -> None:
    faster = replace(ETHERNET, network=NETWORKS["100gbe"], server_s=0.0)
    assert not saturates(256, Async(), replace(faster, push_bytes=1e6, pull_bytes=1e6).clock(256), 1e6, 1e6)
    clock = ETHERNET.clock(256)
    assert not saturates(PLAYED, Async(), clock, 1e8, 8e7)
    assert not saturates(256, Bounded(), clock, 1e8, 8e7)
    assert not saturates(256, Async(), replace(clock, stragglers={0: 2.0}), 1e8, 8e7)
