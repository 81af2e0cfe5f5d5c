"""Peers in a plan: closed forms against plays on the engine, questions, configs, changes."""

from dataclasses import replace
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.engine.rules.clock_settings import Distribution, Link
from scalebook.training.engine.rules.exchanges import AdPsgd, DPsgd, Gossip, Sgp
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.rules.topologies import TOPOLOGIES, make_topology
from scalebook.training.planner.answer_words import printed
from scalebook.training.planner.answering import answer
from scalebook.training.planner.planned_peers import PlannedPeers, peers_named
from scalebook.training.planner.play import play
from scalebook.training.planner.question import Question, rules
from scalebook.training.pricing.links import Network
from scalebook.training.pricing.profile import Profile

BANDWIDTH = 1e9
MESSAGE_S = 0.04
"""Seconds of all parameters on a link."""
GRADIENT_S = 0.1
LATENCY_S = 0.002


def system(gradient_s: Any = GRADIENT_S, **settings: Any) -> Profile:
    link = Link(LATENCY_S, BANDWIDTH)
    nbytes = MESSAGE_S * BANDWIDTH
    return Profile(gradient_s, 32, nbytes, nbytes, network=Network(link, Link(0.0, BANDWIDTH)), **settings)


def planned(strategy: PlannedPeers, workers: int, profile: Profile | None = None) -> float:
    """Rounds, or exchanges, a second."""
    profile = profile or system()
    return strategy.play(profile, workers, profile.network, alone=False).updates_per_s


def played(strategy: PlannedPeers, workers: int, profile: Profile | None = None) -> float:
    """The same, on the engine."""
    profile = profile or system()
    clock = strategy.clock(profile, workers, profile.network, alone=False)
    return play(profile, workers, clock=clock, gradients=12 * workers, local=strategy.peering).updates_per_s


@pytest.mark.each_value
@pytest.mark.parametrize("workers", [2, 5, 16])
@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
@pytest.mark.parametrize("exchange", [DPsgd(), DPsgd("combine_first"), Sgp()], ids=["adapt", "combine", "sgp"])
def test_rounds_take_what_the_closed_form_says(exchange: Any, topology: Any, workers: int) -> None:
    strategy = PlannedPeers(Peering(exchange, make_topology(topology)))
    if not strategy.allows(workers):
        pytest.skip("no such graph")
    assert planned(strategy, workers) == pytest.approx(played(strategy, workers), rel=0.02)


@pytest.mark.parametrize(
    ("name", "workers", "seconds"),
    [
        ("d_psgd:ring", 64, GRADIENT_S + 2 * MESSAGE_S + LATENCY_S),
        ("d_psgd:exponential", 64, GRADIENT_S + 6 * MESSAGE_S + LATENCY_S),
        ("d_psgd:torus", 64, GRADIENT_S + 4 * MESSAGE_S + LATENCY_S),
        ("sgp:one_peer_exponential", 64, GRADIENT_S + MESSAGE_S + LATENCY_S),
        ("d_psgd:complete", 64, GRADIENT_S + 126 * (MESSAGE_S / 64 + LATENCY_S)),
    ],
)
def test_a_round_has_the_bytes_of_the_busiest_peer(name: str, workers: int, seconds: float) -> None:
    (strategy,) = rules(name)
    assert isinstance(strategy, PlannedPeers)
    assert 1 / planned(strategy, workers) == pytest.approx(seconds)


def test_every_and_a_global_average_are_in_the_rounds() -> None:
    ring = make_topology("ring")
    rare = PlannedPeers(Peering(DPsgd(), ring, every=4))
    assert 1 / planned(rare, 8) == pytest.approx(4 * GRADIENT_S + 2 * MESSAGE_S + LATENCY_S)
    assert planned(rare, 8) == pytest.approx(played(rare, 8), rel=0.02)
    average = PlannedPeers(Peering(DPsgd(), ring, global_every=4))
    assert planned(average, 8) == pytest.approx(played(average, 8), rel=0.05)


def test_in_rounds_all_are_as_slow_as_one_and_in_pairs_only_that_one() -> None:
    """The slow peer of a ring, once its delay has been around it; AD-PSGD, where nobody waits (Lian et al. 2018)."""
    slow = system(stragglers={3: 10.0})
    ring, pairs = PlannedPeers(Peering(DPsgd(), make_topology("ring"))), peers_named("ad_psgd", "")
    assert pairs is not None
    for factor in (1.5, 10.0):
        one = system(stragglers={3: factor})
        assert planned(ring, 8, one) == pytest.approx(played(ring, 8, one), rel=0.03)
    assert planned(ring, 8, slow) == pytest.approx(1 / (10 * GRADIENT_S))
    assert planned(pairs, 8, slow) / planned(pairs, 8) == pytest.approx(7.1 / 8, rel=0.06)


def test_a_graph_waits_less_for_gradients_that_vary_than_all_together() -> None:
    profile = system(Distribution("exponential", GRADIENT_S))
    rates = {
        name: planned(PlannedPeers(Peering(DPsgd(), make_topology(name))), 16, replace(profile, push_bytes=1.0))
        for name in ("ring", "complete")
    }
    harmonic = sum(1 / n for n in range(1, 17))  # the mean of the largest of 16
    latency_s = 2 * 15 * LATENCY_S
    assert 1 / rates["complete"] == pytest.approx(harmonic * GRADIENT_S + latency_s, rel=0.01)
    assert 1.2 < rates["ring"] * (1 / rates["complete"] - latency_s) < 2.5


def test_pairs_and_messages_are_played() -> None:
    pairs, gossip = (
        PlannedPeers(Peering(AdPsgd(), make_topology("ring"))),
        PlannedPeers(Peering(Gossip(0.5), make_topology("ring"))),
    )
    assert planned(pairs, 2, system(gradient_s=0.001)) == pytest.approx(1 / MESSAGE_S, rel=0.1)  # two lines, both full
    point = gossip.play(system(), 8, system().network, alone=False)
    assert point.samples_per_s == pytest.approx(8 * 32 / GRADIENT_S, rel=0.02)


def test_on_one_machine_nothing_travels_and_neighbours_are_read() -> None:
    profile = system(cores=8, update_s=0.01)
    strategy = PlannedPeers(Peering(DPsgd(), make_topology("ring")))
    point = strategy.play(profile, 8, profile.network, alone=True)
    assert 1 / point.updates_per_s == pytest.approx(GRADIENT_S + 3 * 0.01)
    two = strategy.play(replace(profile, cores=2), 8, profile.network, alone=True)
    assert 1 / two.updates_per_s == pytest.approx(4 * (GRADIENT_S + 3 * 0.01))


def test_a_question_names_exchange_and_topology() -> None:
    ring, torus = rules("d_psgd,sgp:torus")
    assert (ring.name, torus.name) == ("d_psgd:ring", "sgp:torus")
    with pytest.raises(ConfigError, match=r"--strategies: there is no topology 'circle'.*ring"):
        rules("d_psgd:circle")


def test_the_answer_ranks_peers_beside_a_server_and_says_what_would_help() -> None:
    question = Question((1, 2, 8), rules("ddp,async,d_psgd:exponential,ad_psgd"))
    made = answer(system(weights=4e7, state=4e7), question)
    text = "\n".join(printed(made, system(), made.curves))
    assert "d_psgd:exponential" in text
    assert "Best of 4 with 8 workers" in text
    assert "order: combine_first" in text
    assert "The limit is the workers' links" in text
    assert "Plans of peers over a network, from an incomplete profile were compared on fewer than 5 systems." in text
    assert "The profile does not contain software, so the range for incomplete profiles is used." in text
    memory = {curve.rule: curve.points[-1].memory for curve in made.curves}
    assert memory["d_psgd:exponential"] == memory["ad_psgd:ring"] == 4 * 4e7 + 4e7


def test_the_knee_of_the_server_comes_before_that_of_peers() -> None:
    """A server's link has the pushes of all; a peer's only those of its neighbours."""
    workers = (1, 2, 4, 8, 16, 128)
    curves = answer(system(), Question(workers, rules("async,sgp:one_peer_exponential"))).curves
    server, peers = (curve.points[-1].samples_per_s for curve in curves)
    knee = curves[0].knee
    assert knee is not None
    assert knee.beyond == 8  # a push and the link are full with 0.1 s / 0.04 s and some
    assert curves[1].knee is None or curves[1].knee.beyond == 2  # the first peer's messages are new, no further one's
    assert peers / server == pytest.approx(128 / (GRADIENT_S + MESSAGE_S + LATENCY_S) * MESSAGE_S, rel=0.06)


def test_a_codec_of_the_config_s_own_strategy_is_not_that_of_peers_beside_it() -> None:
    """Those that are asked for beside it send whole parameters."""
    (strategy,) = rules("sgp:one_peer_exponential")
    coded = system(weights=MESSAGE_S * BANDWIDTH)
    coded = replace(coded, push_bytes=coded.push_bytes / 4)
    times = []
    for own in (None, strategy):
        question = Question((8,), (strategy,), coded=True, config_rule=own)
        times.append(1 / answer(coded, question).curves[0].points[0].updates_per_s)
    assert times == pytest.approx([GRADIENT_S + MESSAGE_S + LATENCY_S, GRADIENT_S + MESSAGE_S / 4 + LATENCY_S])
