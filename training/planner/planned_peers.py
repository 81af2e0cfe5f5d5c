"""Peers: workers that exchange parameters with each other. In closed form where nothing is drawn and all wait, else
played on the engine."""

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from typing_extensions import override

from scalebook.training.engine.rules import (
    EXCHANGES,
    TOPOLOGIES,
    Async,
    ClockSettings,
    Complete,
    Distribution,
    DPsgd,
    Link,
    Peering,
    Sgp,
    graph_of,
)
from scalebook.training.planner.all_reduce import WithoutServer
from scalebook.training.planner.answers import Point
from scalebook.training.pricing import Network, Profile, delayed_s, mean_s, reductions

RARER: Final = 4
"""Steps between two exchanges, among the changes that would move a bottleneck."""
ENOUGH: Final = 64
"""Peers that are played of more: a graph of more has longer messages, but waits for neighbours alike."""
ROUNDS: Final = 16
"""Rounds that are played, after half as many: in fewer, peers have not drifted apart yet."""
PERIODS: Final = 64
"""Rounds of a changing graph that are looked at."""


@dataclass(frozen=True)
class PlannedPeers(WithoutServer):
    """The strategy `Peers`. A codec is in the profile's bytes. `parts`: 2 for half of the bytes.

    A message takes the network's latency, and the time of its bytes on the sender's line and on the receiver's, which
    work at once; those of one peer queue in each direction. Workers that share a machine send nothing: each reads its
    neighbours' parameters in memory, which takes as long as an update, of which the bytes are as many.
    """

    peering: Peering
    parts: float = 1.0

    @property
    @override
    def name(self) -> str:
        return f"{self.peering.exchange.name}:{self.peering.topology.name}"

    @property
    @override
    def synchronous(self) -> bool:  # type: ignore[override]
        return self.peering.in_rounds

    def allows(self, workers: int) -> bool:
        """Whether the graph can have so many peers."""
        try:
            without_codec(self.peering).check(Async(), workers)
        except ValueError:
            return False
        return True

    @override
    def play(self, profile: Profile, workers: int, network: Network, alone: bool, seed: int = 0) -> Point:
        """In steady state. `alone`: on one machine, whose cores all workers share."""
        from scalebook.training.planner.play import play  # loads torch, which who only asks does not need

        clock = self.clock(profile, workers, network, alone)
        gradient_s, every = clock.gradient_s, self.peering.every
        if workers == 1:
            alone_s = mean_s(gradient_s) * clock.stragglers.get(0, 1.0)
            return _point(profile, 1, every * alone_s, every * alone_s, 0.0, every)
        sent = replace(profile, push_bytes=profile.push_bytes / self.parts)
        cores = profile.cores if alone and profile.cores is not None and profile.cores < workers else None
        local = without_codec(self.peering)
        if not local.in_rounds:
            return play(sent, workers, clock=clock, seed=seed, cores=cores, local=local)
        exchange_s = self.exchange_s(sent.push_bytes, workers, clock.link)
        most = max([*clock.stragglers.values(), *[1.0] * (workers > len(clock.stragglers))])
        slowest_s = most * mean_s(gradient_s)
        if self._all_meet(workers) and every == 1:
            slowest_s = max(slowest_s, reductions.largest(gradient_s, workers, list(clock.stragglers.values())))
        slowest_s += (math.ceil(workers / cores) - 1) * mean_s(gradient_s) if cores else 0.0
        round_s = self._round_s(slowest_s, exchange_s)
        alike = not _varies(gradient_s) and not clock.stragglers and self._is_regular(workers)
        if not (alike or self._all_meet(workers)):  # who waits where, and for whom, depends on the order
            few = min(workers, ENOUGH)
            rate = play(
                sent,
                few,
                clock=_without_others(clock, few),
                seed=seed,
                cores=cores,
                gradients=ROUNDS * every * few,
                local=local,
            ).updates_per_s
            round_s = max(every * slowest_s, 1 / rate)  # the slowest finds what was sent while it computed
            if self.peering.exchange.combines_first:
                round_s = max(round_s, exchange_s)
            else:
                round_s += exchange_s - self.exchange_s(sent.push_bytes, few, clock.link)
        return _point(profile, workers, round_s, every * mean_s(gradient_s), exchange_s, every)

    def clock(self, profile: Profile, workers: int, network: Network, alone: bool) -> ClockSettings:
        """The declared times; a gradient's has the worker's own update, and what it reads of others in memory."""
        slow = profile.shared_by(workers) if alone else profile
        on_one = alone and slow.cores is not None
        reads = self.degree(workers, shared=True) / self.peering.every if on_one and workers > 1 else 0.0
        gradient_s = delayed_s(slow.gradient_s, slow.update_s * (1 + reads))
        stragglers = {worker: factor for worker, factor in slow.stragglers.items() if worker < workers}
        return ClockSettings(gradient_s, stragglers, link=Link() if on_one else _half(network.link, slow))

    def _round_s(self, slowest_s: float, exchange_s: float) -> float:
        """Seconds of a round: its gradients, and the exchange after them, or beside the last of them."""
        steps = self.peering.every
        if self.peering.exchange.combines_first:
            return (steps - 1) * slowest_s + max(slowest_s, exchange_s)
        return steps * slowest_s + exchange_s

    def _is_regular(self, workers: int) -> bool:
        """Whether all peers of each round send and receive equally often."""
        return all(len(set(counts)) == 1 for counts in self._counts(workers))

    def _counts(self, workers: int) -> Iterator[list[int]]:
        """How many messages each peer sends and receives, by round of the graph's period."""
        topology = self.peering.topology
        for round_ in range(min(PERIODS, topology.period(workers))):
            sends = graph_of(topology, round_, range(workers))
            received = [0] * workers
            for receivers in sends.values():
                for other in receivers:
                    received[other] += 1
            yield received + [len(receivers) for receivers in sends.values()]

    def _all_meet(self, workers: int) -> bool:
        """Whether each sends to all others, which is done as a ring all-reduce."""
        topology = self.peering.topology
        is_whole = all(count == workers - 1 for counts in self._counts(workers) for count in counts)
        return isinstance(topology, Complete) or (workers > 2 and topology.period(workers) == 1 and is_whole)

    def exchange_s(self, nbytes: float, workers: int, link: Link) -> float:
        """Seconds of a round's messages, from the first byte sent to the last one received, for the busiest peer."""
        bandwidth, latency_s = link.bandwidth, 2 * mean_s(link.latency_s)
        assert not isinstance(bandwidth, Distribution), "a profile's are numbers"
        one_s = 0.0 if bandwidth is None else nbytes / bandwidth
        ring_s = 2 * (workers - 1) * (latency_s + one_s / workers)
        if self._all_meet(workers):
            return ring_s
        sends = self.degree(workers)
        graph_s = sends * one_s + latency_s if sends else 0.0
        every = self.peering.global_every
        return graph_s if not every else ((every - 1) * graph_s + ring_s) / every

    def degree(self, workers: int, shared: bool = False) -> float:
        """Messages that the busiest peer sends, or receives, in a round, averaged over the graph's period.

        `shared`: how many parameters it mixes in memory, where the complete graph is not a ring of parts.
        """
        if self.peering.exchange.pairs:
            return 1.0
        if not self.peering.in_rounds:
            return self.peering.exchange.probability
        if self._all_meet(workers):
            return workers - 1 if shared else 2 * (workers - 1) / workers
        return statistics.fmean(map(max, self._counts(workers)))

    @override
    def memory(self, weights: float, state: float, workers: int) -> float:
        """Bytes of a worker's parameters, gradients, optimizer state and of what is shared with others: a copy of what
        it computes with, or where pairs average the same, two more, mailboxes, and with a codec what others know."""
        own = 1 if self.peering.exchange.pairs else 2
        estimates = 2 if self.peering.codec.codes else 0
        return (own + self.peering.buffers + estimates) * weights + state

    @override
    def changes(self, profile: Profile) -> list[tuple[str, WithoutServer]]:
        """See `WithoutServer`."""
        peering, exchange = self.peering, self.peering.exchange
        changed: list[tuple[str, WithoutServer]] = []
        if exchange.waits and not exchange.combines_first:
            first = DPsgd("combine_first") if isinstance(exchange, DPsgd) else Sgp("combine_first")
            words = "exchanging while gradients are being computed (order: combine_first)"
            changed.append((words, replace(self, peering=_with(peering, exchange=first))))
        if peering.every < RARER:
            words = f"one exchange per {RARER} steps (every: {RARER})"
            changed.append((words, replace(self, peering=_with(peering, every=RARER))))
        if exchange.waits and peering.topology.name not in ("one_peer_exponential", "complete"):
            words = "one message per round (topology: one_peer_exponential)"
            one = _with(peering, topology=TOPOLOGIES["one_peer_exponential"](), global_every=0)
            changed.append((words, replace(self, peering=one)))
        if exchange.waits and not exchange.push_sum and self.parts == 1 and not peering.codec.codes:
            changed.append(("codec: bf16, 1/2 of the bytes", replace(self, parts=2.0)))
        return changed


def peers_named(name: str, topology: str) -> PlannedPeers | None:
    """By the name of an exchange and of a topology, "" for a ring; None where there is no such name."""
    if name not in EXCHANGES or (topology or "ring") not in TOPOLOGIES:
        return None
    return PlannedPeers(Peering(EXCHANGES[name](), TOPOLOGIES[topology or "ring"]()))


def without_codec(peering: Peering) -> Peering:
    """The same without a codec, whose bytes the profile has."""
    return _with(peering, codec=None, mixing=None)


def _with(peering: Peering, **changed: object) -> Peering:
    return Peering(**peering.settings() | changed)


def _without_others(clock: ClockSettings, workers: int) -> ClockSettings:
    """The same, of the first workers alone."""
    return replace(clock, stragglers={one: factor for one, factor in clock.stragglers.items() if one < workers})


def _half(link: Link, profile: Profile) -> Link:
    """A peer's end of a link between two of them; software takes its time at both ends."""
    latency_s = mean_s(link.latency_s) / 2
    if profile.software is None:
        return Link(latency_s, link.bandwidth)
    bandwidth, copies = link.bandwidth, profile.software.bandwidth
    assert not isinstance(bandwidth, Distribution), "a profile's are numbers"
    slower = min((one for one in (bandwidth, copies) if one is not None), default=None)
    return Link(latency_s + profile.software.message_s, slower)


def _varies(seconds: float | Distribution) -> bool:
    return isinstance(seconds, Distribution) and (bool(seconds.cv) or seconds.kind == "exponential")


def _point(profile: Profile, workers: int, round_s: float, computes_s: float, exchange_s: float, every: int) -> Point:
    """Of rounds: their gradients, their exchange, and waiting for the slowest."""
    compute = min(1.0, computes_s / round_s)
    busy = min(1.0, exchange_s / round_s)
    communicate = min(busy, 1 - compute)
    return Point(
        workers, 1 / round_s, workers * every * profile.batch_size / round_s, compute, communicate,
        max(0.0, 1 - compute - communicate), 0.0, 0, 0.0, 0.0, 0.0, busy, busy, busy, busy,
    )  # fmt: skip
