"""The end of a worker that exchanges parameters with other workers, its peers, instead of with shards.

A peer makes steps with an optimizer of its own on parameters of its own, as with `local`. After `every` of them it
exchanges: `RoundPeer` in rounds, with its neighbours of a graph (Lian et al. 2017; Assran et al. 2019), `PairPeer` with
one other at a time (Lian et al. 2018), `MailPeer` by messages to which nobody answers (Blot et al. 2016).
"""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.engine.codecs.coder import Coder, Spec
from scalebook.training.engine.coordination.membership import (
    enter,
    is_behind,
    is_member,
    leave,
    leave_between_rounds,
)
from scalebook.training.engine.memory.region import (
    APPLIED,
    BINS,
    FIRST_BIN,
    MESSAGES,
    METER,
    PULLED,
    PUSHED,
    ROW,
    WAIT,
    Control,
)
from scalebook.training.engine.rules.peering import Peering
from scalebook.training.engine.store.hosts import Host
from scalebook.training.engine.store.peer_room import RoundGraph, blocks
from scalebook.training.engine.worker.local_client import LocalClient, LocalReplica
from scalebook.training.engine.worker.worker_end import LocalState, PushResult
from scalebook.training.engine.worker_clock import Wait, Waits


class PeerClient(LocalClient, ABC):
    """What all exchanges share. `version` counts updates: rounds, or exchanges of any peer where nobody waits."""

    def __init__(
        self, control: Control, worker: int, host: Host, replica: LocalReplica, optimizer: Optimizer, late: bool
    ) -> None:
        super().__init__(control, worker, host, replica, optimizer)
        assert isinstance(control.settings.local, Peering)
        assert host.partition.room is not None
        self.is_late = late
        self.peering, self.room = control.settings.local, host.partition.room
        self.peers = self.room.counters
        self.weight = 1.0
        """Its push-sum weight."""
        self.room.clients[worker] = self
        self._budget = control.settings.max_updates
        self._started_s = 0.0
        self._takes_part = False
        self._device = replica.parameters[0].device

    @property
    @override
    def version(self) -> int:
        return int(self.host.partition.shards[0].version)

    @property
    def _nbytes(self) -> int:
        """Bytes of what it sends: its parameters, but for those that are its own alone."""
        return sum(p.nbytes for place, p in enumerate(self.replica.parameters) if place not in self.replica.frozen)

    @property
    def values(self) -> list[Tensor]:
        """Its parameters, without a copy."""
        return [parameter.detach() for parameter in self.replica.parameters]

    @override
    def started(self) -> None:
        """From here on its parameters are its own: those of the first version may become the mean of all."""
        self._mine.stepped()

    @override
    def push_waits(self, valid: bool = True) -> Waits[PushResult]:
        self.replica.await_gradients()
        self.check_foreign_writes("in a forward pass, in training_step or in a hook after on_train_batch_start")
        self._count_gradient()
        is_due = self._since + 1 >= self.peering.every
        if is_due and not self._reserve_update():
            return PushResult(self.version, False, 0, is_last=True)
        self._started_s, waited = self._now(), self._waited()
        staleness = yield from self._update(valid, is_due)
        self._communicated(self._started_s, waited)
        self._own.pushed()
        if is_due:
            self._note_update(staleness)
        return PushResult(self.version, True, staleness, self._is_last(), is_due)

    @abstractmethod
    def _reserve_update(self) -> bool:
        """Whether the budget of updates has room for one more of this peer, which is then made."""

    @abstractmethod
    def _update(self, valid: bool, is_due: bool) -> Waits[int]:
        """Make a step with the gradients that are there, and exchange if that is due; returns the staleness."""

    def _is_last(self) -> bool:
        return self.host.is_over()

    @override
    def push_rest_waits(self) -> Waits[bool]:
        """Nothing is left to push: what a peer has done since its last exchange is in its own parameters."""
        yield from ()
        return True

    @override
    def pull(self, moment: str = "between two pulls") -> int:
        """Show its own parameters again, if they were replaced by the mean; returns the version."""
        self._own.interrupted()
        self.check_foreign_writes(moment, thorough=True)
        self._show_own()
        return super(LocalClient, self)._pull() if not self.bases else self.version

    @override
    def _resume(self) -> Waits[None]:
        self._show_own()
        if not self._trains:
            if self.is_late:
                self._fall_in()
                self._take_mean_of_others()
            self._trains = True
        enter(self._control, self._worker, self.room.deadline_s)
        self._takes_part = True
        yield from self._enter()

    @abstractmethod
    def _enter(self) -> Waits[None]:
        """Begin to take part, with the present parameters."""

    @override
    def complete(self) -> Waits[None]:
        if self._takes_part:  # else it may show the run's last mean
            self._show_own()
        yield from ()

    @override
    def leave(self) -> bool:
        """Take no part until it begins again."""
        if self._takes_part:
            leave(self._control, self._worker, self.room.deadline_s)
        return True

    @override
    def after_leaving(self) -> Waits[None]:
        """Let others read its newest parameters."""
        if self._takes_part:
            yield from self._publish_last()
        self._takes_part = False

    def _publish_last(self) -> Waits[None]:
        """Write the parameters to where the mean is made of them, if they are not there."""
        yield from ()

    # --- the mean ----------------------------------------------------------------------------------------------------

    @override
    def snapshot(self, renew: bool = True) -> tuple[int, dict[str, Any]]:
        """The version at this moment, and the state dict of the worker's own optimizer. The replica has the mean of all
        living peers until the next pull."""
        self._own.interrupted()
        if renew:
            self._mine.show(self.mean())
        self._of_snapshot = LocalState(outer={}, steps=self.steps)
        self.state.go_on()
        state = self.state.of_snapshot = self.state.value()
        return self.version, {"state": state, "param_groups": self.groups()}

    @torch.no_grad()
    def mean(self) -> list[Tensor]:
        """The mean of the living peers' parameters, by place; with push-sum, the sum of their values over that of the
        weights. Valid until the next call."""
        total, plain = ([torch.zeros_like(v, dtype=torch.float64) for v in self.room.mean] for _ in range(2))
        weights, squares, least, count = 0.0, 0.0, math.inf, 0
        for values, weight, is_peer in self._masses():
            exact = [value.to(torch.float64) for value in values]
            torch._foreach_add_(total, exact)
            weights += weight
            if is_peer:
                exact = list(torch._foreach_div(exact, weight))
                torch._foreach_add_(plain, exact)
                squares += _square(exact)
                least, count = min(least, weight), count + 1
        torch._foreach_div_(total, weights)
        size, cross = _square(total), sum(float((m * p).sum()) for m, p in zip(total, plain, strict=True))
        distance = math.sqrt(max(0.0, squares / count - 2 * cross / count + size))
        relative = distance / math.sqrt(size) if size else 0.0
        self.peers.spread[0], self.peers.spread[1], self.peers.spread[2] = distance, relative, least
        torch._foreach_copy_(self.room.mean, total)
        return self.room.mean

    def _masses(self) -> Iterator[tuple[Sequence[Tensor], float, bool]]:
        """Values times weight, and the weight, of each living peer, and of what is under way between them; and whether
        it is a peer's."""
        for worker in self._control.living():
            yield *self.newest_of(worker), True

    def newest_of(self, worker: int) -> tuple[Sequence[Tensor], float]:
        """The newest values of a peer times its weight, on the CPU, and the weight."""
        client = self.room.clients.get(worker)
        if client is None:
            return self.room.read(worker)
        client._show_own()
        return [value.cpu() * client.weight for value in client.values], client.weight

    @torch.no_grad()
    def _take_mean_of_others(self) -> None:
        """For a peer that joins: the mean of the other living peers' parameters."""
        total, weights = list[Tensor](), 0.0
        for other in (one for one in self._control.living() if one != self._worker):
            values, weight = self.newest_of(other)
            total = list(torch._foreach_add(total, list(values)) if total else values)
            weights += weight
        if total:
            self._set_values(torch._foreach_div(total, weights))

    @torch.no_grad()
    def _set_values(self, values: Sequence[Tensor]) -> None:
        torch._foreach_copy_(self.values, list(values))
        self._mine.stepped()

    def _near(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Values where the parameters lie."""
        return [value.to(self._device) for value in values]

    # --- what is counted ---------------------------------------------------------------------------------------------

    def _note_update(self, staleness: int) -> None:
        counters, row = self.host.partition.shards[0].counters, self._worker * METER
        counters.meters[row + APPLIED] += 1
        counters.meters[row + FIRST_BIN + min(staleness, BINS - 1)] += 1

    def _count_traffic(self, sent: int, received: int, messages: int) -> None:
        """Bytes and messages of one exchange."""
        meters, row = self.host.partition.shards[0].counters.meters, self._worker * METER
        meters[row + PUSHED] += sent
        meters[row + PULLED] += received
        meters[row + MESSAGES] += messages

    def _await(self, ready: Callable[[], bool], what: str) -> Waits[None]:
        began = self._now()
        yield Wait(ready, self.room.deadline_s, lambda: f"worker {self._worker} waits for {what}")
        self._control.seconds[self._worker * ROW + WAIT] += self._now() - began


class RoundPeer(PeerClient):
    """Exchanges with its neighbours in rounds: D-PSGD (Lian et al. 2017, algorithm 1) and, with weights that travel,
    stochastic gradient push (Assran et al. 2019, algorithm 1).

    It publishes its values of a round, waits for those of its in-neighbours, and mixes: x_i + mixing * sum_j W_ij
    (y_j - y_i), where y_j is what j has published. With a codec that is y_j of its last round plus the decoded
    difference (CHOCO-SGD: Koloskova et al. 2019, algorithm 2). A neighbour that has published nothing of a round sends
    nothing, and its weight stays at both ends of the edge.

    `adapt_first` makes the step, then publishes; `combine_first` publishes before the gradient is computed, so that the
    exchange takes place meanwhile.
    """

    def __init__(
        self, control: Control, worker: int, host: Host, replica: LocalReplica, optimizer: Optimizer, late: bool
    ) -> None:
        super().__init__(control, worker, host, replica, optimizer, late)
        self._round = self._which = 0  # the last one that it has published, and in which buffer
        self._graph: RoundGraph | None = None  # of that round, until it has mixed
        self._receivers: dict[int, tuple[int, ...]] = {}  # by buffer, of the round there
        self._is_early = self.peering.exchange.combines_first
        codec = self.peering.codec
        specs = [Spec(tuple(p.shape), p.dtype) for p in replica.parameters]
        self._coder = Coder(codec, specs, "codec", feedback=True) if codec.codes else None
        self._decoded = torch.empty(sum(p.numel() for p in replica.parameters) if codec.codes else 0)

    @property
    @override
    def version(self) -> int:
        """The rounds that it has completed itself: how far the others are is a matter of time."""
        return self._made()

    @override
    def _reserve_update(self) -> bool:
        return self._budget is None or self._made() < self._budget

    @override
    def _is_last(self) -> bool:
        return not self._reserve_update() or self.host.is_over()

    def _made(self) -> int:
        """Rounds that it has completed, those of the resumed run included."""
        return int(self.host.partition.counters.admission[1] + self.peers.taken[self._worker])

    @override
    def _enter(self) -> Waits[None]:
        first = self.peers.entered[self._worker]
        if self.peers.tags[2 * self._worker + self._which] == self.peers.NOTHING or first > self._round + 1:
            self._round = max(self._round, first - 1)
            self.peers.taken[self._worker] = self._round
        if self.peers.tags[2 * self._worker + self._which] == self.peers.NOTHING:
            self.room.write(self._worker, self._which, -self._round, self.values)
        if self._is_early and self._graph is None:
            yield from self._publish()

    @override
    def complete(self) -> Waits[None]:
        yield from super().complete()
        if self._graph is not None:
            yield from self._mix_waits(self._graph)
        while self._takes_part and is_behind(self.peers, self._worker):
            yield from self._publish()
            if self._graph is not None:
                yield from self._mix_waits(self._graph)

    @override
    def leave(self) -> bool:
        """Take no part until it begins again. In rounds that others have begun with it before, it takes part without a
        gradient (`complete`): then all of them keep the mean."""
        return not self._takes_part or leave_between_rounds(self._control, self._worker, self.room.deadline_s)

    @override
    def _publish_last(self) -> Waits[None]:
        """Its values before the last mixing stay where others may still read them; the new ones take the place of the
        round before, which its receivers may not have read yet either: on a directed graph it did not wait for them."""
        room, worker, which = self.room, self._worker, 1 - self._which
        yield from self._await_readers(which)
        room.write(worker, which, -self._round, self._numerators(), self.weight)

    def _await_readers(self, which: int) -> Waits[None]:
        """Wait until nobody will read this buffer of its own any more."""
        room, worker, receivers = self.room, self._worker, self._receivers.get(which)
        what = f"other peers to read round {self.peers.tags[2 * worker + which]}"
        yield from self._await(lambda: room.is_read(worker, which, receivers), what)

    @override
    def _update(self, valid: bool, is_due: bool) -> Waits[int]:
        before_step = [value.clone() for value in self.values] if self.weight != 1.0 and not self._is_early else None
        self._step(valid)
        if not is_due:
            return 0
        self._since = 0
        self.replica.await_gradients()
        self._started_s = self._now()
        if not self._is_early:
            yield from self._publish(before_step)
        if self._graph is not None:
            yield from self._mix_waits(self._graph)
        if not self._reserve_update():  # the others' last rounds are updates of the run, too
            yield from self._await(self._are_all_done, "the others' last round")
        elif self._is_early:
            yield from self._publish()
        return 0

    def _are_all_done(self) -> bool:
        self.room.count_rounds(self._worker)
        return self.host.is_over()

    def _numerators(self, before_step: Sequence[Tensor] | None = None) -> list[Tensor]:
        """Its values times its weight. `before_step`: the parameters that the gradient is of: then only these are
        multiplied, and the step is added as it is."""
        if self.weight == 1.0:
            return self.values
        if before_step is None:
            return [value * self.weight for value in self.values]
        return [value + (self.weight - 1.0) * old for value, old in zip(self.values, before_step, strict=True)]

    @torch.no_grad()
    def _publish(self, before_step: Sequence[Tensor] | None = None) -> Waits[None]:
        """Publish the present values as those of the next round."""
        room, worker = self.room, self._worker
        number = max(self._round + 1, self.peers.entered[worker])
        which = number % 2
        yield from self._await_readers(which)
        values, nbytes = self._encoded(self._numerators(before_step))
        room.write(worker, which, number, values, self.weight)
        self.peers.sizes[2 * worker + which] = nbytes
        with room.locked():
            graph = room.graph(number)
            self.peers.published[worker] = number
        self._round, self._which, self._graph = number, which, graph
        self._receivers[which] = graph.receivers.get(worker, ())
        self._control.event.wake()
        ring = self._reduces(graph)
        for receiver in () if ring else self._receivers[which]:
            room.arrivals[worker, receiver, which] = self._clock.travels(worker, receiver, nbytes)
        if ring:
            room.arrivals[worker, worker, which] = self._now()
        count = len(self._receivers[which])
        share = 2 * nbytes / (count + 1) if ring else nbytes
        self._count_traffic(round(share * count), round(share * count) if ring else 0, 2 * count if ring else count)

    def _encoded(self, values: list[Tensor]) -> tuple[Sequence[Tensor], int]:
        """What the others will have of these values, and the bytes that travel to each of them."""
        if self._coder is None:
            return values, self._nbytes
        published = self.room.values(self._worker, self._which)
        pairs = zip(values, published, strict=True)
        difference = [
            None if place in self.replica.frozen else value.cpu() - before
            for place, (value, before) in enumerate(pairs)
        ]
        frame = self._coder.encode(difference, None, 1 << 62 | self._round << 16 | self._worker).frame
        decoded = self._coder.decode(frame, self._decoded)
        following = zip(published, decoded, strict=True)
        return [before if more is None else before + more for before, more in following], frame.numel()

    def _reduces(self, graph: RoundGraph) -> bool:
        """Whether a round is done as a ring all-reduce; frames of a codec have no sum."""
        return graph.reduces and self._coder is None

    @torch.no_grad()
    def _mix_waits(self, graph: RoundGraph) -> Waits[None]:
        """Wait for what the in-neighbours have published of this round, and mix it in."""
        room, worker, number, which = self.room, self._worker, self._round, self._which
        senders = graph.senders.get(worker, ())
        waits_for = ", ".join(map(str, senders[:4])) + (" and others" if len(senders) > 4 else "")
        yield from self._await(
            lambda: all(room.has_come(other, number) for other in senders), f"round {number} of workers {waits_for}"
        )
        self._graph = None
        present = [other for other in senders if room.has_published(other, number)]
        if self._reduces(graph) and present:
            count = len(graph.members)
            around = graph.members[(graph.members.index(worker) + 1) % count]
            nbytes = round(2 * (count - 1) / count * self._nbytes)
            began_s = max(room.arrivals.get((other, other, which), 0.0) for other in (worker, *present))
            done_s = self._clock.travels(worker, around, nbytes, 2 * (count - 1)) - (self._now() - began_s)
            yield from self._clock.arrives(done_s)  # under way since the last of them has published
        elif present:
            yield from self._clock.arrives(max(room.arrivals.get((other, worker, which), 0.0) for other in present))
            self._count_traffic(0, sum(self.peers.sizes[2 * other + which] for other in present), 0)
        values: dict[int, Sequence[Tensor]] = {other: room.values(other, which) for other in present}
        if self.peers.entered[worker] > number:  # it has met others meanwhile, and who writes did not wait for it
            copies = {other: [value.clone() for value in theirs] for other, theirs in values.items()}
            values = {other: copy for other, copy in copies.items() if room.has_published(other, number)}
        if worker in graph.weights:
            self._mix(graph.weights[worker], values, which)
        self.peers.taken[worker] = max(number, self.peers.taken[worker])
        room.count_rounds(worker)
        self._control.event.wake()

    def _mix(self, shares: Mapping[int, float], present: Mapping[int, Sequence[Tensor]], which: int) -> None:
        """`present`: what the neighbours that have published have. Parameters that do not require a gradient stay as
        they are."""
        room, worker, mixing = self.room, self._worker, self.peering.effective_mixing
        places = [place for place in range(len(self.names)) if place not in self.replica.frozen]
        before = self.peers.weights[2 * worker + which]
        parts = [mixing * shares[other] for other in present]
        own_share, after = -math.fsum(parts), 1.0
        if self.peering.exchange.push_sum:
            weights = [shares[other] * self.peers.weights[2 * other + which] for other in present]
            after = shares[worker] * before + math.fsum(weights)
            own_share = shares[worker] - (1.0 / before if self._is_early else 1.0)
        if not present and own_share == 0.0:
            return
        own, all_values = room.values(worker, which), self.values
        for place in places:
            theirs = [values[place] for values in present.values()]
            near = [value.to(self._device) for value in (all_values[place], own[place], *theirs)]
            if self.peering.exchange.push_sum and not self._is_early and before != 1.0:
                near[0].copy_(near[1])
            for value, mine, *others in zip(*map(blocks, near), strict=True):
                for other, share in zip(others, parts, strict=True):
                    value.add_(other, alpha=share)
                value.add_(mine, alpha=own_share)
                if after != 1.0:
                    value.div_(after)
        self.weight = after
        self._mine.stepped()


class PairPeer(PeerClient):
    """Exchanges with one neighbour at a time, to which nobody waits: both get the mean of their parameters at once,
    then it makes its step, with a gradient of what it had read before (AD-PSGD: Lian et al. 2018, algorithm 1).

    On a CPU its parameters are those in shared memory, so that a step copies nothing. It writes its own in place: who
    dies in the middle takes them along. What others write for it they write beside, and show by one store.

    The staleness of an update is how often others have changed its parameters since. On a simulated clock the exchange
    begins with the gradient.
    """

    def __init__(
        self, control: Control, worker: int, host: Host, replica: LocalReplica, optimizer: Optimizer, late: bool
    ) -> None:
        super().__init__(control, worker, host, replica, optimizer, late)
        self._random = random.Random(f"{torch.initial_seed()} peer {worker}")
        self._partner: int | None = None
        self._comes_s = 0.0  # when the exchange with the partner can be made
        self._seen = 0  # changes of its parameters that its replica has
        self._is_in = False
        self._apart: set[int] = set()  # places of parameters that are its own alone, in memory of their own

    @override
    def _reserve_update(self) -> bool:
        return self.room.count_update(self._worker, self._budget)

    @override
    @torch.no_grad()
    def _enter(self) -> Waits[None]:
        if not self._is_in:
            peers, worker = self.peers, self._worker
            with self.room.holding(worker):
                torch._foreach_copy_(self.room.values(worker, peers.current[worker]), self.values)
                peers.broken[worker], peers.taken[worker], self._is_in = 0, 1, True
                self._take_newest()
            self._mine.stepped()
        self._choose()
        yield from ()

    def _choose(self) -> None:
        """Choose the partner of the next exchange, which begins now."""
        others = self.room.partners(self._worker)
        self._partner = self._random.choice(others) if others else None
        if self._partner is not None:
            there = self._clock.travels(self._worker, self._partner, self._nbytes)
            self._comes_s = max(there, self._clock.travels(self._partner, self._worker, self._nbytes))

    @torch.no_grad()
    def _take_newest(self) -> None:
        """Compute with the newest of its values from now on. Under its lock."""
        which = self.peers.current[self._worker]
        self._apart = set(self.replica.frozen)
        pairs = zip(self.replica.parameters, self.room.values(self._worker, which), strict=True)
        for place, (parameter, value) in enumerate(pairs):
            if place in self._apart:
                continue
            if self._device.type == "cpu":
                parameter.data = value
            else:
                parameter.detach().copy_(value)
        self.peers.held[self._worker] = which
        self._seen = self.peers.published[self._worker]

    @override
    @torch.no_grad()
    def _update(self, valid: bool, is_due: bool) -> Waits[int]:
        room, worker, peers = self.room, self._worker, self.peers
        partner = self._partner if is_due and self._partner is not None else worker
        if partner != worker:
            yield from self._clock.arrives(self._comes_s)
        with room.holding(worker, partner):
            if not is_member(peers, partner) or peers.broken[partner] or not peers.taken[partner]:
                partner = worker
            staleness = peers.published[worker] - self._seen
            if thawed := self._apart - self.replica.frozen:  # from now on all share them
                mine = room.values(worker, peers.current[worker])
                for place in thawed:
                    mine[place].copy_(self.replica.parameters[place])
                self._take_newest()
            spare = room.average(worker, partner, self.replica.frozen) if partner != worker else 0
            if staleness or partner != worker:
                self._take_newest()
            self._step(valid)
            if self._device.type != "cpu":
                torch._foreach_copy_(room.values(worker, peers.current[worker]), self.values)
            if not valid:  # a valid step notes it itself
                self._mine.stepped()
            if partner != worker:
                peers.current[partner] = spare
                peers.published[partner] += 1
        self._control.event.wake()
        if is_due:
            self._since = 0
            if partner != worker:
                self._count_traffic(self._nbytes, self._nbytes, 1)
            self._choose()
        return staleness

    @override
    def newest_of(self, worker: int) -> tuple[Sequence[Tensor], float]:
        with self.room.holding(worker):
            if not self.peers.taken[worker] or self.peers.broken[worker]:
                return self.room.mean, 1.0  # it has not begun, and has the first version as all have; or it is dead
            return [value.clone() for value in self.room.values(worker, self.peers.current[worker])], 1.0

    @override
    def snapshot(self, renew: bool = True) -> tuple[int, dict[str, Any]]:
        if renew and self._is_in and self._device.type == "cpu":
            for parameter in self.replica.parameters:
                parameter.data = parameter.data.clone()  # the mean is written into it
        return super().snapshot(renew)

    @override
    def _show_own(self) -> None:
        if not self._is_in:
            super()._show_own()
        elif self._mine.drop_aside():
            self.state.go_on()
            with self.room.holding(self._worker):
                self._take_newest()
            self._mine.stepped()


class MailPeer(PeerClient):
    """Sends to a random neighbour, with a probability after each step, and takes what has come before the next one;
    nobody waits or answers (GoSGD: Blot et al. 2016).

    It keeps half of its weight and sends the other half with its parameters; the receiver takes the weighted mean. Sums
    of weights and of weighted parameters stay as they are, messages under way included.
    """

    def __init__(
        self, control: Control, worker: int, host: Host, replica: LocalReplica, optimizer: Optimizer, late: bool
    ) -> None:
        super().__init__(control, worker, host, replica, optimizer, late)
        self._random = random.Random(f"{torch.initial_seed()} peer {worker}")

    @override
    def _reserve_update(self) -> bool:
        return self.room.count_update(self._worker, self._budget)

    @override
    def _enter(self) -> Waits[None]:
        yield from self._publish_last()

    @override
    def _publish_last(self) -> Waits[None]:
        yield from ()
        self.peers.published[self._worker] += 1
        which = 1 - self.peers.current[self._worker]
        values = [value * self.weight for value in self.values]
        self.room.write(self._worker, which, self.peers.published[self._worker], values, self.weight)

    @override
    @torch.no_grad()
    def _update(self, valid: bool, is_due: bool) -> Waits[int]:
        messages = self._receive()
        self._step(valid)
        if is_due:
            self._since = 0
            others = self.room.partners(self._worker)
            if others and self._random.random() < self.peering.exchange.probability:
                self._send(self._random.choice(others))
        yield from self._publish_last()
        return messages

    def _send(self, receiver: int) -> None:
        self.weight /= 2
        values = [value.cpu() * self.weight for value in self.values]
        self.room.post(receiver, values, self.weight, self._clock.travels(self._worker, receiver, self._nbytes))
        self._count_traffic(self._nbytes, 0, 1)

    def _receive(self) -> int:
        """Take what has come; returns how many messages."""
        values, weight, messages = self.room.open_mail(self._worker)
        if messages:
            after = self.weight + weight
            for place, (value, came) in enumerate(zip(self.values, self._near(values), strict=True)):
                if place not in self.replica.frozen:
                    value.mul_(self.weight).add_(came).div_(after)
            self.weight = after
            self._mine.stepped()
            self._count_traffic(0, messages * self._nbytes, 0)
        return messages

    @override
    def _masses(self) -> Iterator[tuple[Sequence[Tensor], float, bool]]:
        yield from super()._masses()
        yield from ((values, weight, False) for values, weight in self.room.unopened(self._control.living()))


def _square(values: Sequence[Tensor]) -> float:
    """The square of the Euclidean norm of all values together."""
    return math.fsum(float(value.square().sum()) for value in values)


def peer_client(peering: Peering) -> type[RoundPeer] | type[PairPeer] | type[MailPeer]:
    """The class of the peers of this exchange."""
    if peering.exchange.waits:
        return RoundPeer
    return PairPeer if peering.exchange.pairs else MailPeer
