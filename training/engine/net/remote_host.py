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
from scalebook.training.engine.store.gradient_transfer import EncodedPush, GradientTransfer, Push
from scalebook.training.engine.store.hosts import Host, Outcome, Versions
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition
from scalebook.training.engine.store.shard import Newest, Shard
from scalebook.training.engine.worker_clock import Waits

SYNC_S: Final = 30.0
"""How often residuals are sent to the shards, for checkpoints."""
OLD: Final = -1
"""Stands for a version that is not newer than the one held, and is not sent."""


class RemoteTransfer(GradientTransfer):
    """The shards' node decodes; residuals stay here, and are sent there from time to time."""

    def connect(self, channel: Channel, worker: int, await_reply: Callable[[], None]) -> None:
        """`await_reply`: waits for the push under way."""
        self._channel, self._worker, self._await_reply = channel, worker, await_reply
        self._synced = monotonic()

    @override
    def encode(self, worker: int, seq: int, gradients: list[Tensor | None], valid: bool) -> EncodedPush:
        self._await_reply()
        return super().encode(worker, seq, gradients, valid)

    @override
    def decode(self, encoded: EncodedPush) -> list[Tensor | None]:
        return encoded.gradients

    @override
    def store_residual(self, worker: int, seq: int) -> None:
        """Also sends the residuals to the shards every `SYNC_S`."""
        super().store_residual(worker, seq)
        if monotonic() - self._synced > SYNC_S:
            self.sync_residuals()

    def sync_residuals(self) -> None:
        """Send this worker's residuals to the shards, which write checkpoints."""
        self._await_reply()
        if self._coded is not None and (residuals := self._coded.counting(self._worker)):
            parts = [bytes_of(residual) for residual in residuals]
            self._channel.call("sync_residuals", self.partition.number, body=parts)
            self._synced = monotonic()

    def fetch_residuals(self) -> None:
        """Fetch this worker's residuals from the shards: a former life of the worker may have left some."""
        if self._coded is not None and (residuals := self._coded.counting(self._worker)):
            parts = [bytes_of(residual) for residual in residuals]
            self._channel.call("residuals", self.partition.number, into=lambda _: parts)


class MirroredVersions(Versions):
    """The versions in a mirror. `pulls`: decodes those that come as frames. `await_reply`: as in `RemoteTransfer`."""

    def __init__(
        self,
        transfer: RemoteTransfer,
        channel: Channel,
        worker: int,
        pulls: CodedPulls | None,
        await_reply: Callable[[], None],
    ) -> None:
        self._transfer, self._channel, self._worker, self._pulls = transfer, channel, worker, pulls
        self._partition, self._shards = transfer.partition, transfer.partition.shards
        self._await_reply = await_reply
        self._frames = [] if pulls is None else [torch.empty(most, dtype=torch.uint8) for most in pulls.most()]
        self._has_raw = False  # whether the decoder has been given raw versions
        self._buffers: list[int] = []  # into which versions come
        self.fetch_written: Callable[[], None] = lambda: None
        """Fetches the tables that somebody has written into, to compare them (`RemoteTableReads`)."""

    @override
    def fetch(self) -> None:
        self._await_reply()
        parts = [part for shard in self._shards for part in shard.content(Newest(0, *self._free(shard)))]
        room = [bytes_of(part) for part in parts]
        versions = self._channel.call("fetch_full", self._partition.number, into=lambda _: room)
        for shard, version in zip(self._shards, versions, strict=True):
            shard.publish(version, *self._free(shard))

    @override
    def fetch_held(self) -> None:
        self._await_reply()
        places = [shard.newest() for shard in self._shards]
        room = [bytes_of(shard.content(place)[0]) for shard, place in zip(self._shards, places, strict=True)]
        nothing = [OLD] * len(self._shards)
        versions, _ = self._channel.call("pull", self._partition.number, nothing, into=lambda _: room)
        for shard, place, version in zip(self._shards, places, versions, strict=True):
            shard.publish(version, place.buffer, place.state)
        self._transfer.fetch_residuals()
        self.fetch_written()

    @override
    def publish(self) -> None:
        self._await_reply()
        content = [part for shard in self._shards for part in shard.content(shard.newest())]
        steps = self._partition.counters.steps.tolist()
        versions = [shard.version for shard in self._shards]
        parts = [bytes_of(part) for part in content]
        self._channel.call("publish_initial", self._partition.number, versions, steps, body=parts)

    # --- versions that come with a reply -----------------------------------------------------------------------------

    def choose_buffers(self) -> None:
        """Before a call whose reply may bring versions: choose where they go."""
        self._buffers = [self._free(shard)[0] for shard in self._shards]

    def room(self, offered: Any) -> Buffers:
        """Memory for the versions that a reply offers."""
        versions, sizes = offered
        if sizes:
            return [bytes_of(room[:size]) for room, size in zip(self._frames, sizes, strict=True)]
        places = zip(self._shards, self._buffers, versions, strict=True)
        return [bytes_of(shard.flats[buffer]) for shard, buffer, version in places if version != OLD]

    def receive(self, offered: Any) -> None:
        """The versions have arrived in `room`: they are now the mirror's newest."""
        versions, sizes = offered
        for number, (shard, buffer, version) in enumerate(zip(self._shards, self._buffers, versions, strict=True)):
            if version == OLD:
                continue
            if sizes:
                self._decode(number, buffer, sizes[number])
            shard.publish(version, buffer, shard.newest().state)
        if self._pulls is not None and not sizes and not self._has_raw:
            self._pulls.know([shard.newest() for shard in self._shards], self._shards)
            self._has_raw = True

    def _free(self, shard: Shard) -> tuple[int, int]:
        """A buffer and a state that are neither held nor the newest."""
        newest, used = shard.newest(), (shard.newest().buffer, shard.counters.held[self._worker])
        free = [buffer for buffer in range(len(shard.flats)) if buffer not in used]
        return (free[0] if free else newest.buffer), 1 - newest.state

    def _decode(self, number: int, buffer: int, size: int) -> None:
        assert self._pulls is not None
        self._pulls.learn(number, self._frames[number][:size])
        shard = self._shards[number]
        for place, view in zip(shard.plan.parameters, shard.views[buffer], strict=True):
            view.copy_(self._pulls.known[place])


class RemoteHost(Host):
    """`partition`: of the mirror. If a pull follows each push, the reply brings the newest versions. `pulls`: decodes
    versions that come as frames into the mirror.

    With a `stream` a push is under way while the worker computes from the versions of the previous reply. Its outcome
    and its versions are read when the next push, or any other call, is made.
    """

    pipelines = steps_here = False
    transfer_class = RemoteTransfer
    transfer: RemoteTransfer
    versions: MirroredVersions

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
        self.transfer.connect(channel, worker, self._await_reply)
        self.versions = MirroredVersions(self.transfer, channel, worker, pulls, self._await_reply)
        self._encode_groups = Encoder()
        settings = partition.control.settings
        self._wants = settings.local.n_fetch == 1 and not settings.local.keeps
        self._has_newest = self._is_over = False
        self._fields = partition.plan.gradients.fields
        self._stream = None if partition.plan.tables else stream  # whose rows are asked for while it computes
        self._under_way: Future[Any] | None = None
        self._copies: list[Tensor] = []  # of gradients, to which the worker may write while they travel
        if self._stream is not None and partition.coded is None:
            memory = torch.empty(partition.plan.gradients.nbytes, dtype=torch.uint8)
            self._copies = partition.plan.gradients.views(memory)
        self._known = Outcome(Verdict.ADMIT, 0)  # of the last push whose reply has come

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
            self._encode_groups(push.groups).decode(),
        )
        self.versions.choose_buffers()
        self._has_newest = self._wants
        yield from ()  # nothing here waits on this machine's clock
        if self._stream is None:
            self._read_reply(lambda: self._ask(self._channel, arguments, body))
            return self._known
        self._under_way = self._stream.submit(partial(self._ask_in_thread, self._stream, arguments, body))
        is_over = self._is_over or self._known.verdict is Verdict.END
        admitted = Verdict.ADMIT if push.valid else Verdict.DROP
        return Outcome(Verdict.END if is_over else admitted, self._known.staleness)

    @override
    def flush(self, worker: int | None = None) -> Waits[None]:
        """The proxy waits for its own pushes when it begins and when it leaves, and for those of all others."""
        self._await_reply()
        yield from ()

    @override
    def await_turn(self, worker: int) -> Waits[None]:
        if not self._has_newest and self._under_way is None:
            self._control.seconds[worker * ROW + WAIT] += self._channel.call("await_turn", self.partition.number)
        yield from ()

    @override
    def pull(self, worker: int) -> list[Newest]:
        if not self._has_newest:
            self._await_reply()
            self.versions.choose_buffers()
            held = [shard.version if shard.counters.held[worker] >= 0 else OLD for shard in self._shards]
            self.versions.receive(self._channel.call("pull", self.partition.number, held, into=self.versions.room))
        self._has_newest = False
        return super().pull(worker)

    @override
    def is_over(self) -> bool:
        return self._is_over

    # --- a push and its reply ----------------------------------------------------------------------------------------

    def _body(self, push: Push) -> tuple[list[int], Buffers]:
        """What is sent, and its bytes. By gradient: 0 for none, else 1, plus its rows if it is sparse; or the bytes of
        each frame."""
        if push.frames is not None:
            return [frame.numel() for frame in push.frames], [bytes_of(frame) for frame in push.frames]
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

    def _ask(self, channel: Channel, arguments: tuple[Any, ...], body: Buffers) -> Any:
        return channel.call("push", *arguments, body=body, into=lambda reply: self.versions.room(reply[4]))

    def _ask_in_thread(self, stream: PushStream, arguments: tuple[Any, ...], body: Buffers) -> Any:
        """Runs in the push stream's thread."""
        reply = self._ask(stream.channel, arguments, body)
        stream.is_over |= Verdict(reply[0]) is Verdict.END
        return reply

    def _await_reply(self) -> None:
        """Wait for the push under way, and read its reply."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            self._read_reply(under_way.result)

    def _read_reply(self, reply: Callable[[], Any]) -> None:
        began = monotonic()
        verdict, staleness, self._is_over, waited_s, versions = reply()
        self._control.seconds[self._worker * ROW + WAIT] += min(waited_s, monotonic() - began)
        self.versions.receive(versions)
        self._known = Outcome(Verdict(verdict), staleness)
