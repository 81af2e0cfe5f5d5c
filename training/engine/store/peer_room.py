"""The memory in which the peers of one optimizer exchange their parameters: buffers for each, and a mailbox."""

from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from scalebook.training.engine.coordination.membership import is_member, members_of
from scalebook.training.engine.memory.lock import HeldLock
from scalebook.training.engine.memory.region import Control, PartitionCounters, PeerCounters
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.rules.topologies import graph_of, mixing_weights, push_weights
from scalebook.training.engine.store.shard import Shard

BLOCK: Final = 1 << 15
"""Numbers that are averaged at a time: 128 kB of each operand."""


class RoundGraph(NamedTuple):
    """Who sends to whom in one round, by worker; and `weights[i][j]`: the share of j's values in i's next ones, its own
    included."""

    members: tuple[int, ...]
    receivers: dict[int, tuple[int, ...]]
    senders: dict[int, tuple[int, ...]]
    weights: dict[int, dict[int, float]]
    reduces: bool
    """Whether each sends to all others, which is done as a ring all-reduce: 2 (n - 1) / n of the values for each."""


class PeerRoom:
    """One process's view of the peers' buffers. Values are lists of tensors, one for each parameter, in order.

    The buffers lie where a shard has versions: buffer 0 is the first version, and later the mean; then come two or
    three for each peer, then two for each mailbox.
    """

    def __init__(
        self,
        control: Control,
        counters: PartitionCounters,
        shard: Shard,
        peering: Peering,
        deadline_s: float,
        process: int = 0,
    ) -> None:
        """`process`: a number that no other process has."""
        assert counters.peers is not None, "settings with peers"
        self.control, self.peering, self.deadline_s = control, peering, deadline_s
        self.counters: PeerCounters = counters.peers
        self._admission, self._shard, self._me = counters, shard, process
        self._own = peering.own_buffers
        self._parts: dict[tuple[int, int], list[list[Tensor]]] = {}
        self._lock = HeldLock(control.admission_lock, deadline_s)
        self._graph = lru_cache(maxsize=256)(self._graph_of)
        self.clients: dict[int, Any] = {}
        """The peers of this process: one, or all on a simulated clock."""
        self.arrivals: dict[tuple[int, int, int], float] = {}
        """On a simulated clock, when what one peer has sent to another from one of its buffers will have arrived, s."""
        self._messages: list[tuple[float, int, list[Tensor], float]] = []  # on a simulated clock, under way

    # --- buffers -----------------------------------------------------------------------------------------------------

    def values(self, worker: int, which: int) -> list[Tensor]:
        """One of the buffers of a peer, without a copy."""
        return self._shard.views[1 + self._own * worker + which]

    def mail(self, worker: int, which: int) -> list[Tensor]:
        """One of the two buffers of a peer's mailbox."""
        return self._shard.views[1 + self._own * self.control.workers + 2 * worker + which]

    @property
    def mean(self) -> list[Tensor]:
        """Where worker 0 puts the mean of all peers; the first version until then."""
        return self._shard.views[0]

    @torch.no_grad()
    def write(self, worker: int, which: int, tag: int, values: Sequence[Tensor], weight: float = 1.0) -> None:
        """Write these values into a buffer of a peer, and make it the one with its newest values."""
        slot = 2 * worker + which
        self.counters.tags[slot] = PeerCounters.NOTHING
        torch._foreach_copy_(self.values(worker, which), list(values))
        self.counters.weights[slot] = weight
        self.counters.tags[slot] = tag
        self.counters.current[worker] = which

    @torch.no_grad()
    def read(self, worker: int) -> tuple[list[Tensor], float]:
        """A copy of the newest values of a peer, whole, and their weight. TimeoutError if it writes faster than they
        can be copied."""
        nothing = PeerCounters.NOTHING
        if all(self.counters.tags[2 * worker + which] == nothing for which in (0, 1)):
            return [value.clone() for value in self.mean], 1.0  # it has not begun, and has the first version
        for _ in range(1000):
            which = self.counters.current[worker]
            slot = 2 * worker + which
            tag = self.counters.tags[slot]
            copy = [value.clone() for value in self.values(worker, which)]
            weight = self.counters.weights[slot]
            if tag != nothing and self.counters.tags[slot] == tag:
                return copy, weight
        raise TimeoutError(f"peer {worker} writes faster than its parameters can be copied.")

    # --- rounds ------------------------------------------------------------------------------------------------------

    def graph(self, round_: int) -> RoundGraph:
        """The graph of a round that somebody has published, or is about to publish under `locked`."""
        members = members_of(self.counters, round_)
        every = self.peering.global_every
        phase = -1 if every and round_ % every == 0 else (round_ - 1) % self.peering.topology.period(len(members))
        return self._graph(members, phase)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run's admission lock, under which memberships change."""
        with self._lock:
            yield

    def has_come(self, worker: int, round_: int) -> bool:
        """Whether it is decided what a peer has published of a round."""
        has_left = not is_member(self.counters, worker) or self.counters.entered[worker] > round_
        return has_left or self.counters.published[worker] >= round_

    def has_published(self, worker: int, round_: int) -> bool:
        """Whether a peer's values of this round lie in its buffer; asked when `has_come`."""
        return bool(self.counters.tags[2 * worker + round_ % 2] == round_)

    def is_read(self, worker: int, which: int, receivers: Sequence[int] | None = None) -> bool:
        """Whether nobody will read this buffer of `worker` any more, of the round that it has now. `receivers`: of that
        round, if they are known."""
        tag = self.counters.tags[2 * worker + which]
        if tag <= 0:
            return True
        if receivers is None:
            with self._lock:
                receivers = self.graph(tag).receivers.get(worker, ())
        taken, entered = self.counters.taken, self.counters.entered
        return all(
            taken[other] >= tag or entered[other] > tag or not is_member(self.counters, other) for other in receivers
        )

    def count_rounds(self, worker: int) -> None:
        """Make the updates of the run as many as the rounds that all members have completed."""
        with self._lock:
            members = members_of(self.counters, max(self.counters.published) + 1)
            done = min((self.counters.taken[member] for member in members), default=max(self.counters.taken))
            self._advance(worker, done - sum(self._admission.admitted))

    def count_update(self, worker: int, budget: int | None) -> bool:
        """Count an update of one peer. False, with no effect, if the budget is used up."""
        with self._lock:
            so_far = self._admission.admission[1] + sum(self._admission.admitted)
            if budget is not None and so_far >= budget:
                return False
            self._advance(worker, 1)
        return True

    def _advance(self, worker: int, updates: int) -> None:
        if updates > 0:
            self._admission.admitted[worker] += updates
            version = self._admission.admission[1] + sum(self._admission.admitted)
            self._shard.publish(version, 0, 0)

    def _graph_of(self, members: tuple[int, ...], phase: int) -> RoundGraph:
        if phase < 0:
            sends = {member: tuple(other for other in members if other != member) for member in members}
        else:
            sends = graph_of(self.peering.topology, phase, members)
        numbers = {member: place for place, member in enumerate(members)}
        by_place = [[numbers[other] for other in sends[member]] for member in members]
        rows = push_weights(by_place) if self.peering.exchange.push_sum else mixing_weights(by_place)
        senders: dict[int, list[int]] = {member: [] for member in members}
        for member, receivers in sends.items():
            for other in receivers:
                senders[other].append(member)
        weights = {
            members[place]: {members[other]: weight for other, weight in row.items()} for place, row in enumerate(rows)
        }
        reduces = len(members) > 2 and all(len(of) == len(members) - 1 for of in sends.values())
        return RoundGraph(members, dict(sends), {m: tuple(of) for m, of in senders.items()}, weights, reduces)

    # --- pairs and mail ----------------------------------------------------------------------------------------------

    @contextmanager
    def holding(self, *workers: int) -> Iterator[None]:
        """Hold these peers' locks, taken in order of their numbers, so that no two processes wait for each other."""
        counters = self.counters
        with ExitStack() as locks:
            for worker in sorted(set(workers)):
                lock = counters.locks[worker]
                if lock.acquire(self.deadline_s) and counters.owner[worker] == worker:
                    counters.broken[worker] = 1  # what others write for it is whole: they write beside its values
                locks.callback(lock.release)
                counters.owner[worker] = self._me
            yield

    def spare(self, worker: int) -> int:
        """A buffer of a pair's peer that has neither its newest values nor those that it computes with."""
        used = self.counters.current[worker], self.counters.held[worker]
        return next(which for which in range(3) if which not in used)

    @torch.no_grad()
    def average(self, worker: int, partner: int, without: Set[int]) -> int:
        """Give `worker` the mean of the newest values of both, in their place, and write it into a spare buffer of
        `partner`, whose number is returned; a part after the other, while it is in the core's cache. Parameters at the
        places in `without` stay each one's own. Under `holding` of both."""
        spare, current = self.spare(partner), self.counters.current
        mine, theirs = self.parts(worker, current[worker]), self.parts(partner, current[partner])
        for place, (own, other, out) in enumerate(zip(mine, theirs, self.parts(partner, spare), strict=True)):
            for a, b, c in zip(own, other, out, strict=True):
                c.copy_(b if place in without else a.lerp_(b, 0.5))
        return spare

    def parts(self, worker: int, which: int) -> list[list[Tensor]]:
        """The values of a buffer, for each parameter in parts of BLOCK numbers."""
        key = worker, which
        if key not in self._parts:
            self._parts[key] = [blocks(value) for value in self.values(worker, which)]
        return self._parts[key]

    def partners(self, worker: int) -> tuple[int, ...]:
        """Whom a peer may exchange with now: its neighbours in the graph of the present members."""
        with self._lock:
            graph = self.graph(max(self.counters.published) + 1)
        both = {*graph.receivers.get(worker, ()), *graph.senders.get(worker, ())}
        return tuple(sorted(both))

    @torch.no_grad()
    def post(self, receiver: int, values: list[Tensor], weight: float, at_s: float) -> None:
        """Put values, times their weight, into a peer's mailbox, where they are at `at_s`."""
        if at_s > self.control.clock.now():
            self._messages.append((at_s, receiver, values, weight))
            return
        counters = self.counters
        with self.holding(receiver):
            which = counters.mail_current[receiver]
            there, spare = counters.mail[2 * receiver + which], self.mail(receiver, 1 - which)
            torch._foreach_copy_(spare, values)
            if there:
                torch._foreach_add_(spare, self.mail(receiver, which))
            counters.mail[2 * receiver + 1 - which] = there + weight
            counters.mail_count[receiver] += 1
            counters.mail_current[receiver] = 1 - which

    @torch.no_grad()
    def open_mail(self, worker: int) -> tuple[list[Tensor], float, int]:
        """Take the sum of what has come for `worker`, and of its weights; and how many messages that were."""
        now_s = self.control.clock.now()
        come = [message for message in self._messages if message[1] == worker and message[0] <= now_s]
        if come:
            self._messages = [message for message in self._messages if message[1] != worker or message[0] > now_s]
            for _, _, values, weight in come:
                self.post(worker, values, weight, now_s)
        counters = self.counters
        with self.holding(worker):
            which, count = counters.mail_current[worker], counters.mail_count[worker]
            weight = counters.mail[2 * worker + which]
            values = [value.clone() for value in self.mail(worker, which)] if weight else []
            counters.mail[2 * worker + which], counters.mail_count[worker] = 0.0, 0
        return values, weight, count

    def unopened(self, workers: Sequence[int]) -> Iterator[tuple[list[Tensor], float]]:
        """What lies in the mailboxes of these peers or is on its way to them: the sums of values and of weights."""
        for worker in workers:
            with self.holding(worker):
                which = self.counters.mail_current[worker]
                weight = self.counters.mail[2 * worker + which]
                values = [value.clone() for value in self.mail(worker, which)] if weight else []
            if weight:
                yield values, weight
        yield from ((values, weight) for _, receiver, values, weight in self._messages if receiver in workers)


def blocks(values: Tensor) -> list[Tensor]:
    """A dense tensor's numbers as they lie in memory, in parts of BLOCK."""
    flat = values.as_strided((values.numel(),), (1,))
    return list(torch.split(flat, BLOCK))
