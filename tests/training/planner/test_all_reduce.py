"""Strategies without a server: closed forms, of which each is known by itself."""

import math
from dataclasses import replace

import pytest
import torch

from scalebook.training.engine.rules.clock_settings import Distribution, Link
from scalebook.training.engine.rules.update_rules import Sync
from scalebook.training.planner.all_reduce import AllReduce, buckets
from scalebook.training.planner.play import play
from scalebook.training.pricing.links import Network
from scalebook.training.pricing.profile import Profile, SharedNode
from scalebook.training.pricing.reductions import all_reduce_s, largest

PLAIN = Profile(0.3, 32, 1e8, 1e8)
LINK = Link(1e-4, 1e9)
ETHERNET = Network(LINK, Link(0.0, 1e9))


def reduced(profile: Profile, workers: int, strategy: AllReduce | None = None) -> float:
    """Seconds of an update."""
    return 1 / (strategy or AllReduce()).play(profile, workers, ETHERNET, alone=False).updates_per_s


def test_a_ring_sends_all_but_a_share_twice_and_trees_take_fewer_messages() -> None:
    ring, tree = (all_reduce_s(8e6, 8, LINK, replace(PLAIN, all_reduce=name)) for name in ("ring", "tree"))
    assert ring == pytest.approx(2 * 7 / 8 * 8e6 / 1e9 + 14e-4)
    assert tree == pytest.approx(2 * 8e6 / 1e9 + 6e-4)
    assert all_reduce_s(8e6, 8, LINK, PLAIN) == min(ring, tree) == ring
    assert all_reduce_s(8e3, 8, LINK, PLAIN) == pytest.approx(2 * 8e3 / 1e9 + 6e-4)
    assert all_reduce_s(8e6, 1, LINK, PLAIN) == 0


def test_workers_of_a_node_share_its_link_to_the_others() -> None:
    """16 workers on two nodes put the bytes of two machines on the link, not those of sixteen."""
    node = replace(PLAIN, node=SharedNode(8, Link(0.0, 1e11)))
    within = 2 * 7 / 8 * 8e6 / 1e11
    assert all_reduce_s(8e6, 8, LINK, node) == pytest.approx(within)
    for workers in (12, 16):  # a node that is not full has a link of its own, too
        assert all_reduce_s(8e6, workers, LINK, node) == pytest.approx(within + 8e6 / 1e9 + 2e-4)
    assert node.clock(16, 1, ETHERNET).link.bandwidth == 1e9 / 8
    assert node.clock(2, 1, ETHERNET).link.bandwidth == 1e9 / 2


def test_buckets_are_those_of_torch() -> None:
    """The first has 1 MB, others 25; as measured, or evenly over the last two thirds of a gradient."""
    times, sizes = zip(*buckets(PLAIN, 25), strict=True)
    assert times == pytest.approx([1 / 3 + 2 / 3 * done / 100 for done in (1, 26, 51, 76, 100)])
    assert sizes == (1e6, 25e6, 25e6, 25e6, 24e6)
    measured = replace(PLAIN, ready=((0.4, 6e5), (0.5, 6e5), (0.6, 2e7), (0.9, 1e7), (1.0, 1e6)))
    assert list(buckets(measured, 25)) == [(0.5, 1.2e6), (0.9, 3e7), (1.0, 1e6)]
    assert list(buckets(measured, math.inf)) == [(0.5, 1.2e6), (1.0, 3.1e7)]


def test_only_what_the_backward_pass_does_not_hide_is_waited_for() -> None:
    early = replace(PLAIN, ready=((0.5, 1e8),))
    takes = 1e8 / 1e9 + 2e-4  # two workers
    assert reduced(early, 2) == pytest.approx(0.3)
    assert reduced(replace(early, ready=((1.0, 1e8),)), 2) == pytest.approx(0.3 + takes)
    assert reduced(replace(early, overlap=False), 2) == pytest.approx(0.3 + takes)
    assert reduced(replace(early, ready=((0.9, 1e8),)), 2) == pytest.approx(0.27 + takes)
    late = replace(early, ready=((1.0, 1e8),), update_s=0.01)
    assert reduced(late, 2, AllReduce(parts=2)) == pytest.approx(0.31 + 0.5 * 1e8 / 1e9 + 2e-4)
    framed = reduced(replace(late, push_bytes=1e6), 5, AllReduce(gathers=True))
    assert framed == pytest.approx(0.3 + 4 * 1e6 / 1e9 + 4e-4 + 5 * 0.01), "each decodes the frames of all"


def test_fsdp_sends_half_as_much_again() -> None:
    """Two gathers and a reduction are three halves of an all-reduce; nothing is hidden without overlap."""
    slow = replace(PLAIN, overlap=False, ready=((1.0, 1e8),), gradient_s=0.0001)
    ddp, fsdp = reduced(slow, 4), reduced(slow, 4, AllReduce(sharded=True))
    assert (fsdp - 1e-4) / (ddp - 1e-4) == pytest.approx(1.5, rel=0.01)


def test_without_bytes_an_update_takes_what_the_engine_s_sync_takes() -> None:
    profile = Profile(Distribution("gamma", 0.1, 0.2), 32, 0.0, 0.0)
    played = play(profile, 16, Sync(), gradients=4_800).updates_per_s
    assert AllReduce().play(profile, 16, Network(), alone=False).updates_per_s == pytest.approx(played, rel=0.01)


def test_the_last_of_several_gradients() -> None:
    assert largest(0.1, 8, [2.0]) == 0.2
    assert largest(Distribution("exponential", 0.1), 16) == pytest.approx(
        0.1 * sum(1 / n for n in range(1, 17)), rel=1e-3
    )
    half = 0.3 * math.sqrt(3)
    assert largest(Distribution("uniform", 1.0, 0.3), 9) == pytest.approx(1 + half * 0.8, rel=1e-3)
    for kind, draws in (
        ("gamma", torch.distributions.Gamma(25.0, 25.0)),
        ("lognormal", torch.distributions.LogNormal(-math.log1p(0.04) / 2, math.log1p(0.04) ** 0.5)),
    ):
        torch.manual_seed(0)
        drawn = draws.sample((20_000, 16)).max(dim=1).values.mean().item()
        assert largest(Distribution(kind, 1.0, 0.2), 16) == pytest.approx(drawn, rel=0.005)  # type: ignore[arg-type]  # a name


def test_cores_that_are_shared_make_turns() -> None:
    profile = replace(PLAIN, cores=2, push_bytes=0.0)
    assert AllReduce().play(profile, 8, Network(), alone=True).samples_per_s == pytest.approx(2 * 32 / 0.3)
    assert AllReduce().play(profile, 8, Network(), alone=False).samples_per_s == pytest.approx(8 * 32 / 0.3)
    assert AllReduce().play(profile, 3, Network(), alone=True).samples_per_s == pytest.approx(3 * 32 / 0.6)


def test_a_worker_holds_weights_gradients_and_state_or_its_shares_of_them() -> None:
    """400 MB, and 800 of Adam's state. Sharded over 8: an eighth of 1,600 MB, and two parts of 25 MB."""
    assert AllReduce().memory(4e8, 8e8, 8) == 16e8
    assert AllReduce(sharded=True).memory(4e8, 8e8, 8) == 2e8 + 5e7
    assert AllReduce(sharded=True).memory(4e7, 0.0, 8) == 1e7 + 4e7, "no more than the model is whole"
    assert AllReduce(sharded=True).memory(4e8, 8e8, 1) == 16e8
