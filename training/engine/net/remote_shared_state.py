"""What a remote worker shares with the others beside parameters, by calls to its proxy."""

import mmap
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from scalebook.training.engine.coordination.worker_messages import Phase, PlateauStep
from scalebook.training.engine.net.channel import Channel
from scalebook.training.engine.net.push_stream import PushStream
from scalebook.training.engine.net.raw_tensors import bytes_of
from scalebook.training.engine.net.wire import ProtocolError
from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.worker.cursor import TakenBatch

MOST_MESSAGE_BYTES: Final = 64 << 20
"""Most bytes that a worker sends in one exchange."""


class RemoteCursor:
    """A `DataCursor` for one worker only. With a push stream, `mark_done` follows the pushes there."""

    def __init__(self, channel: Channel, workers: int, stream: PushStream | None) -> None:
        self._call, self.workers, self._stream = channel.call, workers, stream

    def enter_epoch(self, worker: int, epoch: int, batches: int, deal: Deal) -> bool:
        return bool(self._call("cursor.enter_epoch", epoch, batches, int(deal)))

    def take_batch(self, worker: int) -> TakenBatch | None:
        taken = self._call("cursor.take_batch")
        return None if taken is None else TakenBatch(*taken)

    def mark_done(self, worker: int, count: int = 1) -> None:
        if self._stream is not None:
            self._stream.mark_done(count)
        else:
            self._call("cursor.mark_done", count)

    def outstanding(self, besides: Collection[int] = ()) -> int:
        return int(self._call("cursor.outstanding", list(besides)))

    def progress(self) -> int:
        return int(self._call("cursor.progress"))

    def mark_dead(self, worker: int) -> None:
        self._settled("cursor.mark_dead")

    def rejoin(self, worker: int) -> None:
        self._settled("cursor.rejoin")

    def state(self) -> dict[int, list[tuple[int, int]]]:
        return {epoch: [(start, stop) for start, stop in ranges] for epoch, ranges in self._settled("cursor.state")}

    def _settled(self, name: str) -> Any:
        if self._stream is not None:
            self._stream.drain()
        return self._call(name)


class RemoteSignals:
    """`Signals`."""

    def __init__(self, channel: Channel) -> None:
        self._call = channel.call

    @property
    def stop(self) -> bool:
        return bool(self._call("signals.stop"))

    def ask_to_stop(self) -> None:
        self._call("signals.ask_to_stop")

    def mark_begun(self) -> None:
        self._call("signals.mark_begun")

    def note_checkpoint(self, path: str | Path) -> None:
        self._call("signals.note_checkpoint", str(path))

    def add_plateau_step(self, step: PlateauStep) -> None:
        self._call("signals.add_plateau_step", int(step.scheduler), float(step.metric))

    def plateau_steps(self, since: int) -> list[PlateauStep]:
        return [PlateauStep(*step) for step in self._call("signals.plateau_steps", since)]


class RemoteExchange:
    """A `MessageExchange`. ValueError for a message of more than MOST_MESSAGE_BYTES bytes. Messages are sent raw, after
    their lengths."""

    def __init__(self, channel: Channel, workers: int) -> None:
        self._call, self._workers = channel.call, workers

    def set_phase(self, phase: Phase) -> None:
        self._call("meetings.set_phase", int(phase))

    def pass_by(self, place: int) -> None:
        self._call("meetings.pass_by", place)

    def gather_before_training(self, message: bytes, what: str) -> dict[int, bytes]:
        return self._messages("gather_before_training", message, what)

    def all_gather(self, place: int, message: bytes, what: str, meanwhile: Callable[[], None]) -> dict[int, bytes]:
        return self._messages("all_gather", message, what, place, meanwhile=meanwhile)

    def streams_differ(self, digest: int) -> bool:
        return bool(self._call("meetings.streams_differ", digest))

    def _messages(
        self, name: str, message: bytes, what: str, *place: int, meanwhile: Callable[..., None] | None = None
    ) -> dict[int, bytes]:
        if len(message) > MOST_MESSAGE_BYTES:
            raise ValueError(
                f"all_gather: a worker sent {len(message):,} bytes, but between nodes at most {MOST_MESSAGE_BYTES:,} "
                "are allowed. Gather less."
            )
        come: dict[int, bytearray] = {}

        def room(lengths: dict[str, int]) -> list[memoryview]:
            if len(lengths) > self._workers or any(
                not 0 <= length <= MOST_MESSAGE_BYTES for length in lengths.values()
            ):
                raise ProtocolError("channel: received messages that are too long or come from an unknown worker")
            come.update({int(worker): bytearray(length) for worker, length in lengths.items()})
            return [memoryview(one) for one in come.values()]

        self._call(
            f"meetings.{name}", *place, len(message), what, body=[memoryview(message)], into=room, meanwhile=meanwhile
        )
        return {worker: bytes(one) for worker, one in come.items()}


class RemoteRows:
    """`Rows` as local copies; memory is taken only for what is written."""

    def __init__(self, channel: Channel, worker: int, workers: int) -> None:
        self._call, self._worker, self._workers = channel.call, worker, workers
        self._rows = torch.empty(0, dtype=torch.uint8)

    def allocate(self, row_bytes: int) -> None:
        self._call("rows.allocate", row_bytes)

    def map(self, row_bytes: int) -> Tensor:
        self._call("rows.map", row_bytes)
        memory = mmap.mmap(-1, max(1, self._workers * row_bytes))
        self._rows = torch.frombuffer(memory, dtype=torch.uint8)[: self._workers * row_bytes].view(-1, row_bytes)
        return self._rows

    def publish(self, parts: Sequence[tuple[int, int]]) -> None:
        row = self._rows[self._worker]
        self._call(
            "rows.publish",
            [place for part in parts for place in part],
            body=[bytes_of(row[start:stop]) for start, stop in parts],
        )

    def fetch(self, parts: Sequence[tuple[int, int, int]]) -> None:
        self._call(
            "rows.fetch",
            [place for part in parts for place in part],
            into=lambda _: [bytes_of(self._rows[worker, start:stop]) for worker, start, stop in parts],
        )
