"""Who sends to whom in a round of peers, and with which weights each mixes what it receives. Pure.

A graph is a list of receivers for each peer. Its weights are a matrix W, here by rows: `W[i][j]` is the share of j's
values in i's next ones. W is doubly stochastic where rows and columns sum to 1: then mixing keeps the mean.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, Literal

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.argument_limits import BySettings

TopologyName = Literal["ring", "torus", "exponential", "one_peer_exponential", "complete", "bipartite"]
Graph = Sequence[Sequence[int]]
Weights = list[dict[int, float]]


class Topology(BySettings, ABC):
    """Which peers are neighbours.

    To define a custom topology, derive from this class in a module that `scalebook.toml` names, and return to whom each
    peer sends. When peers die, the topology is asked for a graph of the remaining peers.
    """

    ARGUMENT = "topology"
    name: ClassVar[str]
    """Its name in messages; by default the name of the class."""
    words: ClassVar[str | None] = None
    """The label that tells runs apart; None: its name."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = vars(cls).get("name", cls.__name__)

    @abstractmethod
    def neighbours(self, round_: int, peers: int) -> Graph:
        """To whom each of the peers 0 to `peers` - 1 sends in a round, never to itself."""

    def period(self, peers: int) -> int:
        """Rounds after which the graphs repeat; 1: the graph never changes."""
        return 1


class Ring(Topology):
    """Each peer has two neighbours. This graph costs least, but its peers agree most slowly: with 64 peers, a
    difference takes 216 rounds to halve."""

    name = "ring"

    def neighbours(self, round_: int, peers: int) -> Graph:
        return _around(peers, (1, -1))


class Torus(Topology):
    """Rows and columns, each closed to a ring, and as nearly square as the number of peers allows. A prime number of
    peers makes a ring."""

    name = "torus"

    def neighbours(self, round_: int, peers: int) -> Graph:
        columns = next(n for n in range(math.isqrt(peers), 0, -1) if peers % n == 0)
        rows = peers // columns
        sends = []
        for peer in range(peers):
            row, column = divmod(peer, columns)
            near = {
                (row + 1) % rows * columns + column,
                (row - 1) % rows * columns + column,
                row * columns + (column + 1) % columns,
                row * columns + (column - 1) % columns,
            }
            sends.append(sorted(near - {peer}))
        return sends


class Exponential(Topology):
    """Each peer sends to the peers 1, 2, 4, ... ahead (the static exponential graph of Ying et al. 2021)."""

    name = "exponential"

    def neighbours(self, round_: int, peers: int) -> Graph:
        return _around(peers, [1 << hop for hop in range(_hops(peers))])


class OnePeerExponential(Topology):
    """In each round, each peer sends to one other peer: 1, 2, 4, ... ahead, in turn (Assran et al. 2019; Ying et al.
    2021). All N peers are equal after log2 N rounds if N is a power of 2."""

    name = "one_peer_exponential"
    words = "one-peer exponential"

    def neighbours(self, round_: int, peers: int) -> Graph:
        return _around(peers, [1 << round_ % max(_hops(peers), 1)])

    def period(self, peers: int) -> int:
        return max(_hops(peers), 1)


class Complete(Topology):
    """Each peer averages with all others, as in an all-reduce. On a virtual clock, this takes as long as a ring
    all-reduce."""

    name = "complete"

    def neighbours(self, round_: int, peers: int) -> Graph:
        return _around(peers, range(1, peers))


class Bipartite(Topology):
    """Even peers are neighbours of odd peers, at distances 1, 3, 7, ... (the graph of AD-PSGD in Assran et al. 2019).
    If the number of peers is odd, this division is impossible, so some even or some odd peers are neighbours of each
    other."""

    name = "bipartite"

    def neighbours(self, round_: int, peers: int) -> Graph:
        return _around(peers, [way * ((1 << hop) - 1) for hop in range(1, _hops(peers) + 1) for way in (1, -1)])


TOPOLOGIES: Final[dict[str, type[Topology]]] = {
    topology.name: topology for topology in (Ring, Torus, Exponential, OnePeerExponential, Complete, Bipartite)
}


def make_topology(topology: TopologyName | Topology) -> Topology:
    """The topology itself, or the one of this name."""
    if isinstance(topology, Topology):
        return topology
    if topology not in TOPOLOGIES:
        raise ArgumentError(
            "unknown-value", Topology.ARGUMENT, f"{topology!r} is unknown", f"Use one of {', '.join(TOPOLOGIES)}."
        )
    return TOPOLOGIES[topology]()


def graph_of(topology: Topology, round_: int, members: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """To whom each of these peers sends in a round, closed over them. ArgumentError for a graph of one's
    own that is none."""
    if len(members) < 2:
        return dict.fromkeys(members, ())
    sends = topology.neighbours(round_, len(members))
    if len(sends) != len(members):
        raise _no_graph(topology, f"returns {len(sends)} lists of neighbours for {len(members)} peers")
    for peer, receivers in enumerate(sends):
        for other in receivers:
            if not 0 <= other < len(members) or other == peer:
                raise _no_graph(
                    topology,
                    f"lets peer {peer} send to {other}, which is not one of the other {len(members) - 1} peers",
                )
    return {members[peer]: tuple(members[other] for other in dict.fromkeys(of)) for peer, of in enumerate(sends)}


def mixing_weights(sends: Graph) -> Weights:
    """W, doubly stochastic: of an undirected graph by Metropolis and Hastings, 1 / (1 + the larger degree of the two);
    of a directed one in which all send and receive equally often 1 / (1 + that number). ArgumentError for
    another graph."""
    received = [0] * len(sends)
    for receivers in sends:
        for other in receivers:
            received[other] += 1
    is_undirected = all(peer in sends[other] for peer, receivers in enumerate(sends) for other in receivers)
    degrees = {len(receivers) for receivers in sends} | set(received)
    if not is_undirected and len(degrees) > 1:
        raise ArgumentError(
            "contradiction",
            Topology.ARGUMENT,
            "some of its peers send more often than they receive, so averaging would shift the mean",
            "Make every edge go both ways, or set exchange: sgp.",
        )
    weights: Weights = [{} for _ in sends]
    for peer, receivers in enumerate(sends):
        for other in receivers:
            weights[other][peer] = 1 / (1 + max(len(receivers), len(sends[other])))
    for peer, row in enumerate(weights):
        row[peer] = 1 - math.fsum(row.values())
    return weights


def push_weights(sends: Graph) -> Weights:
    """W, of which each column sums to 1: a peer divides its values among itself and those it sends to."""
    weights: Weights = [{} for _ in sends]
    for peer, receivers in enumerate(sends):
        for other in (peer, *receivers):
            weights[other][peer] = 1 / (1 + len(receivers))
    return weights


def second_eigenvalue(topology: Topology, peers: int) -> float:
    """The factor by which a round lets the distance of such peers from their mean fall in the long run: the largest
    modulus of an eigenvalue of W but the 1; of graphs that change, of the product over a period, by its length.

    Found by powers of W on a deviation from the mean, to about three digits.
    """
    if peers < 2:
        return 0.0
    members = range(peers)
    graphs = [graph_of(topology, round_, members) for round_ in range(topology.period(peers))]
    rounds = [[[*row.items()] for row in mixing_weights([graph[peer] for peer in members])] for graph in graphs]
    values = [math.sin(1.0 + 7.0 * peer * peer) for peer in range(peers)]
    log, turns = 0.0, -(-400 // len(rounds))
    for turn in range(turns):
        mean = math.fsum(values) / peers
        values = [value - mean for value in values]
        norm = math.sqrt(math.fsum(value * value for value in values))
        if norm < 1e-200:
            return 0.0
        if turn >= turns // 2:
            log += math.log(norm)
        values = [value / norm for value in values]
        for weights in rounds:
            values = _mixed(weights, values)
        if math.sqrt(math.fsum(value * value for value in values)) < 1e-12:
            return 0.0
    return math.exp(log / ((turns - turns // 2) * len(rounds)))


def _mixed(weights: Sequence[Sequence[tuple[int, float]]], values: Sequence[float]) -> list[float]:
    return [sum([weight * values[other] for other, weight in row]) for row in weights]


def _around(peers: int, hops: Sequence[int]) -> list[list[int]]:
    """Each peer sends so many places ahead on a circle."""
    return [list(dict.fromkeys(to for hop in hops if (to := (peer + hop) % peers) != peer)) for peer in range(peers)]


def _hops(peers: int) -> int:
    """Powers of 2 below `peers`."""
    return (peers - 1).bit_length()


def _no_graph(topology: Topology, why: str) -> ValueError:
    return ArgumentError(
        "contradiction",
        Topology.ARGUMENT,
        f"{topology.name} {why}",
        "For each peer, let neighbours() return the numbers of other peers, counted from 0.",
    )
