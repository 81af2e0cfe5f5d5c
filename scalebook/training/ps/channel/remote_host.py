"""A worker's way to shards on another machine: gradients go there whole, versions come back whole."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from torch import Tensor
from typing_extensions import override

from scalebook.training.ps.applying.hosts import Host, Outcome, Push
from scalebook.training.ps.applying.section import Section
from scalebook.training.ps.applying.shard import Newest, Shard
from scalebook.training.ps.channel.channel import Buffers, Channel
from scalebook.training.ps.channel.raw import as_laid_out, bytes_of
from scalebook.training.ps.clock import Steps
from scalebook.training.ps.coordination.admission import Verdict
from scalebook.training.ps.memory.region import ROW, WAIT
from scalebook.training.ps.optimizer.hyper import Encoder

OLD: Final = -1
"""Stands for a version that is not newer than the one held, and does not travel."""


class RemoteHost(Host):
    """`section`: of the mirror. Where a pull follows each push the newest versions come with its reply.
    `before_push`: what else others are to see by then."""

    shares_memory = False

    def __init__(self, section: Section, channel: Channel, worker: int, before_push: Callable[[], None]) -> None:
        super().__init__(section)
        self._before_push = before_push
        self._channel, self._worker = channel, worker
        self._encode = Encoder()
        settings = section.control.settings
        self._wants = settings.rule.pull_every == 1 and not settings.local.keeps
        self._has_come = self._is_over = False
        self._fields = section.plan.gradients.fields

    @override
    def push(self, push: Push) -> Steps[Outcome]:
        sent = [None if gradient is None or not push.valid else gradient for gradient in push.gradients]
        laid_out = [None if g is None else as_laid_out(g, field) for g, field in zip(sent, self._fields, strict=True)]
        self._before_push()
        asked = monotonic()
        verdict, staleness, self._is_over, waited_s, versions = self._channel.call(
            "push",
            self.section.number,
            push.seq,
            [base.version for base in push.bases],
            push.valid,
            self._wants,
            [int(gradient is not None) for gradient in laid_out],
            self._encode(push.groups).decode(),
            body=[bytes_of(gradient) for gradient in laid_out if gradient is not None],
            into=lambda reply: self._room(reply[4]),
        )
        self._control.seconds[self._worker * ROW + WAIT] += min(waited_s, monotonic() - asked)
        self._have(versions)
        self._has_come = self._wants
        yield from ()  # nothing here waits on this machine's clock
        return Outcome(Verdict(verdict), staleness)

    @override
    def settle(self, worker: int) -> Steps[None]:
        """The stand-in settles what it has pushed when it begins and when it leaves."""
        yield from ()

    @override
    def await_turn(self, worker: int) -> Steps[None]:
        if not self._has_come:
            self._control.seconds[worker * ROW + WAIT] += self._channel.call("turn", self.section.number)
        yield from ()

    @override
    def pull(self, worker: int) -> list[Newest]:
        if not self._has_come:
            held = [shard.version if shard.counters.held[worker] >= 0 else OLD for shard in self._shards]
            self._have(self._channel.call("pull", self.section.number, held, into=self._room))
        self._has_come = False
        return super().pull(worker)

    @override
    def is_over(self) -> bool:
        return self._is_over

    @override
    def look(self) -> None:
        versions = self._channel.call("look", self.section.number, into=self._room_for_all)
        for shard, version in zip(self._shards, versions, strict=True):
            shard.publish(version, *self._beside(shard))

    @override
    def look_again(self) -> None:
        places = [shard.newest() for shard in self._shards]
        room = [bytes_of(shard.content(place)[0]) for shard, place in zip(self._shards, places, strict=True)]
        nothing = [OLD] * len(self._shards)
        versions = self._channel.call("pull", self.section.number, nothing, into=lambda _: room)
        for shard, place, version in zip(self._shards, places, versions, strict=True):
            shard.publish(version, place.buffer, place.state)

    @override
    def lay_down(self) -> None:
        content = [part for shard in self._shards for part in shard.content(shard.newest())]
        steps = self.section.counters.steps.tolist()
        versions = [shard.version for shard in self._shards]
        self._channel.call("lay_down", self.section.number, versions, steps, body=[bytes_of(part) for part in content])

    @override
    def help(self) -> None:
        """Whoever is where the shards are does."""

    @override
    def complete(self) -> Steps[None]:
        """The stand-in has waited for it."""
        yield from ()

    @override
    def _contributed(self) -> None:
        """As `help`."""

    @override
    def _await_round(self, worker: int) -> Steps[None]:
        yield from ()

    # --- room --------------------------------------------------------------------------------------------------------

    def _beside(self, shard: Shard) -> tuple[int, int]:
        """Buffer and state that are neither held nor the newest."""
        newest, held = shard.newest(), shard.counters.held[self._worker]
        return (1 - held if held >= 0 else newest.buffer), 1 - newest.state

    def _room(self, versions: Any) -> Buffers:
        pairs = zip(self._shards, versions, strict=True)
        return [bytes_of(shard.flats[self._beside(shard)[0]]) for shard, version in pairs if version != OLD]

    def _room_for_all(self, _: Any) -> Buffers:
        return [bytes_of(part) for shard in self._shards for part in self._parts(shard)]

    def _parts(self, shard: Shard) -> tuple[Tensor, Tensor]:
        buffer, state = self._beside(shard)
        return shard.content(Newest(0, buffer, state))

    def _have(self, versions: Sequence[int]) -> None:
        for shard, version in zip(self._shards, versions, strict=True):
            if version != OLD:
                shard.publish(version, self._beside(shard)[0], shard.newest().state)
