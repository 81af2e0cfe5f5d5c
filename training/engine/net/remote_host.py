"""A worker's connection to shards on another node: whole gradients go there, whole versions come back."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import Any, Final

import torch
from torch import Tensor
from typing_extensions import override

from scalebook.training.engine.coordination.admission import Verdict
from scalebook.training.engine.hyper import Encoder
from scalebook.training.engine.memory.region import ROW, WAIT
from scalebook.training.engine.net.channel import Buffers, Channel
from scalebook.training.engine.net.push_stream import PushStream
from scalebook.training.engine.net.raw_tensors import as_laid_out, bytes_of
from scalebook.training.engine.store.coded_traffic import CodedPulls
from scalebook.training.engine.store.hosts import EncodedPush, Host, Outcome, Push
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition
from scalebook.training.engine.store.shard import Newest, Shard
from scalebook.training.engine.worker_clock import Waits

LAY_S: Final = 30.0
"""How often residuals are sent to the shards, for checkpoints."""
OLD: Final = -1
"""Stands for a version that is not newer than the one held, and is not sent."""


class RemoteHost(Host):
    """`partition`: of the mirror. If a pull follows each push, the reply brings the newest versions. `pulls`: decodes
    versions that come as frames into the mirror.

    With a `stream` a push is under way while the worker computes from the versions of the previous reply. Its outcome
    and its versions are read when the next push, or any other call, is made.
    """

    def __init__(
        self,
        partition: OptimizerPartition,
        channel: Channel,
        worker: int,
        pulls: CodedPulls | None = None,
        stream: PushStream | None = None,
    ) -> None:
        super().__init__(partition)
        self._channel, self._worker = channel, worker
        self._encode = Encoder()
        settings = partition.control.settings
        self._wants = settings.local.n_fetch == 1 and not settings.local.keeps
        self._has_come = self._is_over = False
        self._fields = partition.plan.gradients.fields
        self._frames: list[Tensor] | None = None  # of the push under way
        self.fetch_written: Callable[[], None] = lambda: None
        """Fetches the tables that somebody has written into, to compare them (`RemoteTableReads`)."""
        self._pulls = pulls
        self._come = [] if pulls is None else [torch.empty(most, dtype=torch.uint8) for most in pulls.most()]
        self._laid = monotonic()
        self._knows = False
        self._stream = None if partition.plan.tables else stream  # whose rows are asked for while it computes
        self._under_way: Future[Any] | None = None
        self._copies: list[Tensor] = []  # of gradients, to which the worker may write while they travel
        if self._stream is not None and self._coded is None:
            self._copies = partition.plan.gradients.views(
                torch.empty(partition.plan.gradients.nbytes, dtype=torch.uint8)
            )
        self._coming: list[int] = []  # into which buffers
        self._known = Outcome(Verdict.ADMIT, 0)  # of the last push whose reply has come

    pipelines = steps_here = False

    @override
    def send(self, worker: int, seq: int, gradients: list[Tensor | None], valid: bool) -> EncodedPush:
        self._land()
        return super().send(worker, seq, gradients, valid)

    @override
    def push(self, push: Push) -> Waits[Outcome]:
        """With overlap, returns the staleness and verdict of the previous push."""
        present, body = self._body(push)
        arguments = (
            self.partition.number,
            push.seq,
            [base.version for base in push.bases],
            push.valid,
            self._wants,
            present,
            self._encode(push.groups).decode(),
        )
        self._coming = [self._beside(shard)[0] for shard in self._shards]
        self._has_come = self._wants
        yield from ()  # nothing here waits on this machine's clock
        if self._stream is None:
            self._arrives(lambda: self._ask(self._channel, arguments, body))
            return self._known
        self._under_way = self._stream.submit(partial(self._fly, self._stream, arguments, body))
        is_over = self._is_over or self._known.verdict is Verdict.END
        admitted = Verdict.ADMIT if push.valid else Verdict.DROP
        return Outcome(Verdict.END if is_over else admitted, self._known.staleness)

    def _ask(self, channel: Channel, arguments: tuple[Any, ...], body: Buffers) -> Any:
        return channel.call("push", *arguments, body=body, into=lambda reply: self._room(reply[4], self._coming))

    def _fly(self, stream: PushStream, arguments: tuple[Any, ...], body: Buffers) -> Any:
        """Runs in the push stream's thread."""
        reply = self._ask(stream.channel, arguments, body)
        stream.is_over |= Verdict(reply[0]) is Verdict.END
        return reply

    def _land(self) -> None:
        """Wait for the push under way."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            self._arrives(under_way.result)

    def _arrives(self, reply: Callable[[], Any]) -> None:
        began = monotonic()
        verdict, staleness, self._is_over, waited_s, versions = reply()
        self._control.seconds[self._worker * ROW + WAIT] += min(waited_s, monotonic() - began)
        self._have(versions, self._coming)
        self._known = Outcome(Verdict(verdict), staleness)

    @override
    def receive(self, way: EncodedPush) -> list[Tensor | None]:
        """The shards' node decodes it."""
        self._frames = way.frames
        return way.gradients

    def _body(self, push: Push) -> tuple[list[int], Buffers]:
        """What is sent, and its bytes. By gradient: 0 for none, else 1, plus its rows if it is sparse; or the bytes of
        each frame."""
        if self._frames is not None:
            return [frame.numel() for frame in self._frames], [bytes_of(frame) for frame in self._frames]
        sent = push.gradients if push.valid else [None] * len(push.gradients)
        present, parts = list[int](), list[Tensor]()
        for place, (gradient, field) in enumerate(zip(sent, self._fields, strict=True)):
            if gradient is None:
                present.append(0)
            elif gradient.is_sparse:
                present.append(1 + gradient._nnz())
                parts += [gradient._indices()[0].contiguous(), gradient._values().contiguous()]
            else:
                present.append(1)
                laid_out = as_laid_out(gradient, field)
                parts.append(self._copies[place].copy_(laid_out) if self._copies else laid_out)
        return present, [bytes_of(part) for part in parts]

    @override
    def store_residuals(self, push: Push, outcome: Outcome) -> None:
        """Also sends the residuals to the shards every `LAY_S`."""
        super().store_residuals(push, outcome)
        if monotonic() - self._laid > LAY_S:
            self.sync_residuals()

    def sync_residuals(self) -> None:
        """Send this worker's residuals to the shards, which write checkpoints."""
        self._land()
        if self._coded is not None and (residuals := self._coded.counting(self._worker)):
            self._channel.call(
                "sync_residuals", self.partition.number, body=[bytes_of(residual) for residual in residuals]
            )
            self._laid = monotonic()

    @override
    def flush(self, worker: int) -> Waits[None]:
        """The proxy waits for its own pushes when it begins and when it leaves."""
        self._land()
        yield from ()

    @override
    def await_turn(self, worker: int) -> Waits[None]:
        if not self._has_come and self._under_way is None:
            self._control.seconds[worker * ROW + WAIT] += self._channel.call("await_turn", self.partition.number)
        yield from ()

    @override
    def pull(self, worker: int) -> list[Newest]:
        if not self._has_come:
            self._land()
            coming = [self._beside(shard)[0] for shard in self._shards]
            held = [shard.version if shard.counters.held[worker] >= 0 else OLD for shard in self._shards]
            come = self._channel.call("pull", self.partition.number, held, into=lambda reply: self._room(reply, coming))
            self._have(come, coming)
        self._has_come = False
        return super().pull(worker)

    @override
    def is_over(self) -> bool:
        return self._is_over

    @override
    def fetch_full(self) -> None:
        self._land()
        versions = self._channel.call("fetch_full", self.partition.number, into=self._room_for_all)
        for shard, version in zip(self._shards, versions, strict=True):
            shard.publish(version, *self._beside(shard))

    @override
    def refetch(self) -> None:
        self._land()
        places = [shard.newest() for shard in self._shards]
        room = [bytes_of(shard.content(place)[0]) for shard, place in zip(self._shards, places, strict=True)]
        nothing = [OLD] * len(self._shards)
        versions, _ = self._channel.call("pull", self.partition.number, nothing, into=lambda _: room)
        for shard, place, version in zip(self._shards, places, versions, strict=True):
            shard.publish(version, place.buffer, place.state)
        if self._coded is not None and (residuals := self._coded.counting(self._worker)):
            self._channel.call(
                "residuals", self.partition.number, into=lambda _: [bytes_of(residual) for residual in residuals]
            )
        self.fetch_written()

    @override
    def publish_initial(self) -> None:
        self._land()
        content = [part for shard in self._shards for part in shard.content(shard.newest())]
        steps = self.partition.counters.steps.tolist()
        versions = [shard.version for shard in self._shards]
        self._channel.call(
            "publish_initial", self.partition.number, versions, steps, body=[bytes_of(part) for part in content]
        )

    @override
    def help(self) -> None:
        """No-op: the server does it."""

    @override
    def complete(self) -> Waits[None]:
        """No-op: the proxy has waited."""
        yield from ()

    @override
    def _contributed(self) -> None:
        """No-op: the server does it."""

    @override
    def _await_round(self, worker: int) -> Waits[None]:
        yield from ()

    # --- room --------------------------------------------------------------------------------------------------------

    def _beside(self, shard: Shard) -> tuple[int, int]:
        """A buffer and a state that are neither held nor the newest."""
        newest, used = shard.newest(), (shard.newest().buffer, shard.counters.held[self._worker])
        free = [buffer for buffer in range(len(shard.flats)) if buffer not in used]
        return (free[0] if free else newest.buffer), 1 - newest.state

    def _room(self, come: Any, coming: list[int]) -> Buffers:
        """Memory for incoming versions. `coming`: the buffers for versions that come raw."""
        versions, sizes = come
        if sizes:
            return [bytes_of(room[:size]) for room, size in zip(self._come, sizes, strict=True)]
        places = zip(self._shards, coming, versions, strict=True)
        return [bytes_of(shard.flats[buffer]) for shard, buffer, version in places if version != OLD]

    def _room_for_all(self, _: Any) -> Buffers:
        return [bytes_of(part) for shard in self._shards for part in self._parts(shard)]

    def _parts(self, shard: Shard) -> tuple[Tensor, Tensor]:
        buffer, state = self._beside(shard)
        return shard.content(Newest(0, buffer, state))

    def _have(self, come: Any, coming: list[int]) -> None:
        versions, sizes = come
        for number, (shard, buffer, version) in enumerate(zip(self._shards, coming, versions, strict=True)):
            if version == OLD:
                continue
            if sizes:
                self._decode(number, buffer, sizes[number])
            shard.publish(version, buffer, shard.newest().state)
        if self._pulls is not None and not sizes and not self._knows:
            self._pulls.know([shard.newest() for shard in self._shards], self._shards)
            self._knows = True

    def _decode(self, number: int, buffer: int, size: int) -> None:
        assert self._pulls is not None
        self._pulls.learn(number, self._come[number][:size])
        shard = self._shards[number]
        for place, view in zip(shard.plan.parameters, shard.views[buffer], strict=True):
            view.copy_(self._pulls.known[place])
