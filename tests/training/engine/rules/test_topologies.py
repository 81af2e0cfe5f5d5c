"""Graphs of peers, and the weights with which they mix."""

import math
import random
from collections.abc import Sequence

import pytest

from scalebook.training.engine.rules.topologies import (
    TOPOLOGIES,
    Complete,
    Exponential,
    OnePeerExponential,
    Ring,
    Topology,
    Torus,
    graph_of,
    make_topology,
    mixing_weights,
    push_weights,
    second_eigenvalue,
)
from tests.training.engine.refusing import refused


def sums(weights: Sequence[dict[int, float]]) -> tuple[list[float], list[float]]:
    """Of the rows and of the columns."""
    columns = [math.fsum(row.get(peer, 0.0) for row in weights) for peer in range(len(weights))]
    return [math.fsum(row.values()) for row in weights], columns


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_weights_are_doubly_stochastic_for_every_number_of_peers_and_of_those_that_are_left(name: str) -> None:
    topology, rng = make_topology(name), random.Random(1)  # type: ignore[arg-type]
    for peers in range(1, 65):
        members = sorted(rng.sample(range(100), peers))
        for round_ in range(topology.period(peers)):
            graph = graph_of(topology, round_, members)
            places = {member: place for place, member in enumerate(members)}
            sends = [[places[other] for other in graph[member]] for member in members]
            rows, columns = sums(mixing_weights(sends))
            assert rows == pytest.approx([1] * peers)
            assert columns == pytest.approx([1] * peers)
            assert all(weight >= -1e-12 for row in mixing_weights(sends) for weight in row.values())
            assert sums(push_weights(sends))[1] == pytest.approx([1] * peers)


@pytest.mark.parametrize(
    ("topology", "peers", "expected"),
    [
        (Ring(), 8, 0.805), (Ring(), 16, 0.949), (Ring(), 64, 0.997), (Torus(), 64, 0.883), (Exponential(), 64, 0.714),
        (OnePeerExponential(), 64, 0.0), (Complete(), 16, 0.0), (Ring(), 1, 0.0),
    ],
    ids=repr,
)  # fmt: skip
def test_the_second_eigenvalue(topology: Topology, peers: int, expected: float) -> None:
    assert second_eigenvalue(topology, peers) == pytest.approx(expected, abs=1e-3)


def test_one_peer_graphs_average_exactly_in_a_period_if_the_peers_are_a_power_of_two() -> None:
    def spread(peers: int) -> float:
        values = [float(peer) for peer in range(peers)]
        for round_ in range(OnePeerExponential().period(peers)):
            rows = mixing_weights(OnePeerExponential().neighbours(round_, peers))
            values = [sum(weight * values[other] for other, weight in row.items()) for row in rows]
        return max(values) - min(values)

    assert spread(16) == 0
    assert spread(12) > 0.1


class Star(Topology):
    """All send to the first, which sends to all."""

    def neighbours(self, round_: int, peers: int) -> Sequence[Sequence[int]]:
        return [list(range(1, peers)), *[[0] for _ in range(1, peers)]]


class Funnel(Topology):
    """All send to the first, which sends to one."""

    def neighbours(self, round_: int, peers: int) -> Sequence[Sequence[int]]:
        return [[1], *[[0] for _ in range(1, peers)]]


class Wrong(Topology):
    """A peer that sends to itself."""

    def neighbours(self, round_: int, peers: int) -> Sequence[Sequence[int]]:
        return [[peer] for peer in range(peers)]


def test_a_graph_of_ones_own() -> None:
    rows, columns = sums(mixing_weights(Star().neighbours(0, 6)))
    assert rows == columns == pytest.approx([1] * 6)
    with refused("contradiction topology"):
        mixing_weights(Funnel().neighbours(0, 6))
    with refused("contradiction topology"):
        graph_of(Wrong(), 0, range(3))
    assert make_topology(Star()).name == "Star"
    with refused("unknown-value topology"):
        make_topology("web")  # type: ignore[arg-type]
