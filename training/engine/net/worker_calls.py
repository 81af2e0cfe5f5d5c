"""All calls that a worker on another node may make of its proxy; read `call_protocol.py` first, then this."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.optim import Optimizer

from scalebook.training.engine.coordination.run import SharedRun
from scalebook.training.engine.coordination.worker_messages import Phase, PlateauStep
from scalebook.training.engine.memory.region import COMMUNICATE, COMPUTE, DATA, GRADIENTS, MEMORY, ROW, SAMPLES
from scalebook.training.engine.net.call_protocol import MOST, CallSpec, ReadCall, Reply, Room, count, numbers, read
from scalebook.training.engine.net.gradient_calls import GradientCalls
from scalebook.training.engine.net.push_stream import OFFERED
from scalebook.training.engine.net.raw_tensors import bytes_of
from scalebook.training.engine.net.remote_shared_state import MOST_MESSAGE_BYTES
from scalebook.training.engine.net.wire import ProtocolError
from scalebook.training.engine.rules.duration_summary import DurationSummary
from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.worker.shared_end import SharedEnd

MOST_BATCHES: Final = 2**31
"""Most batches of an epoch, and most epochs."""
MOST_ROW: Final = 64 << 30
"""Most bytes of a worker's row that worker 0 may request; memory is taken only for what is written."""


class SideCalls:
    """Calls about batches, signals, messages and rows, carried out by the proxy's own `SharedEnd`. `tell` sends the
    worker a message while it waits."""

    def __init__(self, end: SharedEnd, tell: Callable[..., None]) -> None:
        self._end, self._tell = end, tell
        self._rows = torch.empty(0, dtype=torch.uint8)
        self._message = bytearray()

    def offers(self) -> dict[str, CallSpec]:
        """The calls by name."""
        end, cursor, signals, worker = self._end, self._end.cursor, self._end.signals, self._end.worker
        figures = end.figures
        return {
            "rendezvous": CallSpec((str,), end.rendezvous),
            "living": CallSpec((), end.living),
            "sign_of_life": CallSpec((), end.sign_of_life),
            "is_over": CallSpec((), end.is_over),
            "cursor.enter_epoch": CallSpec((int, int, int), self._begin),
            "cursor.take_batch": CallSpec((), lambda: cursor.take_batch(worker)),
            "cursor.mark_done": CallSpec((int,), lambda done: cursor.mark_done(worker, count(done, MOST_BATCHES))),
            "cursor.outstanding": CallSpec((list,), lambda besides: cursor.outstanding(set(besides))),
            "cursor.progress": CallSpec((), cursor.progress),
            "cursor.mark_dead": CallSpec((), lambda: cursor.mark_dead(worker)),
            "cursor.rejoin": CallSpec((), lambda: cursor.rejoin(worker)),
            "cursor.state": CallSpec((), lambda: list(cursor.state().items())),
            "signals.stop": CallSpec((), lambda: signals.stop),
            "signals.ask_to_stop": CallSpec((), signals.ask_to_stop),
            "signals.mark_begun": CallSpec((), signals.mark_begun),
            "signals.note_checkpoint": CallSpec((str,), signals.note_checkpoint),
            "signals.add_plateau_step": CallSpec(
                (int, float), lambda *step: signals.add_plateau_step(PlateauStep(*step))
            ),
            "signals.plateau_steps": CallSpec((int,), lambda since: signals.plateau_steps(count(since))),
            "meetings.set_phase": CallSpec((int,), lambda phase: end.meetings.set_phase(Phase(phase))),
            "meetings.pass_by": CallSpec((int,), lambda place: end.meetings.pass_by(count(place))),
            "meetings.gather_before_training": CallSpec((int, str), self._before, self._message_room),
            "meetings.all_gather": CallSpec(
                (int, int, str), self._meet, lambda _, *message: self._message_room(*message)
            ),
            "meetings.streams_differ": CallSpec((int,), end.meetings.streams_differ),
            "rows.allocate": CallSpec((int,), self._allocate),
            "rows.map": CallSpec((int,), self._map),
            "rows.publish": CallSpec((list,), lambda _: None, lambda places: self._parts(_grouped(places, 2), worker)),
            "rows.fetch": CallSpec((list,), lambda places: Reply(None, self._parts(_grouped(places, 3)))),
            "counts": CallSpec((), figures.counts),
            "worker_times": CallSpec((), figures.worker_times),
            "staleness": CallSpec((), self._staleness),
            "pushes": CallSpec((), figures.pushes),
            "timings": CallSpec((), self._timings),
        }

    def _begin(self, epoch: int, batches: int, deal: int) -> bool:
        return self._end.cursor.enter_epoch(
            self._end.worker, count(epoch, MOST_BATCHES), count(batches, MOST_BATCHES), Deal(deal)
        )

    def _message_room(self, length: int, _what: str) -> Room:
        self._message = bytearray(count(length, MOST_MESSAGE_BYTES + 1))
        return [memoryview(self._message)]

    def _before(self, _length: int, what: str) -> Reply:
        return _posted(self._end.meetings.gather_before_training(bytes(self._message), what))

    def _meet(self, place: int, _length: int, what: str) -> Reply:
        return _posted(self._end.meetings.all_gather(count(place), bytes(self._message), what, self._tell))

    def _allocate(self, row_bytes: int) -> None:
        if self._end.worker != 0 or not 0 < row_bytes <= MOST_ROW:
            raise ProtocolError("channel: no such rows")
        self._end.rows.allocate(row_bytes)

    def _map(self, row_bytes: int) -> None:
        if not 0 < row_bytes <= MOST_ROW:
            raise ProtocolError("channel: no such rows")
        self._rows = self._end.rows.map(row_bytes)

    def _parts(self, parts: list[list[int]], *worker: int) -> list[memoryview]:
        """Memory of these parts of rows, in this order; of this worker's row unless the parts name a worker."""
        workers, size = self._rows.shape if self._rows.numel() else (0, 0)
        places = [(*worker, *part) for part in parts]
        for row, start, stop in places:
            if not (0 <= row < workers and 0 <= start <= stop <= size):
                raise ProtocolError("channel: asked for a part of a row that does not exist")
        if sum(stop - start for _, start, stop in places) > self._rows.numel():
            raise ProtocolError("channel: asked for more values than all rows have")
        return [bytes_of(self._rows[row, start:stop]) for row, start, stop in places]

    def _staleness(self) -> Any:
        return self._end.figures.staleness().counts.tolist()

    def _timings(self) -> Any:
        timings = self._end.figures.timings()
        return [[_plain(one) for one in timings.workers], _plain(timings.server)]


def _grouped(places: list[Any], count: int) -> list[list[int]]:
    if len(numbers(places)) % count:
        raise ProtocolError("channel: received no valid list of parts of rows")
    return [places[first : first + count] for first in range(0, len(places), count)]


def _plain(took: DurationSummary | None) -> Any:
    return None if took is None else [took.count, took.mean, took.cv, took.values]


def _posted(messages: dict[int, bytes]) -> Reply:
    """The length of each message, and the messages themselves."""
    return Reply(
        {worker: len(message) for worker, message in messages.items()},
        [memoryview(message) for message in messages.values()],
    )


_NOTED: Final = (COMPUTE, DATA, COMMUNICATE)


class Calls:
    """The calls of worker `end.worker`. `optimizers`: the same as the worker's, with parameters of this process.

    The caller has the run's key. Its calls are parsed strictly all the same, and act in its own name only.
    """

    def __init__(self, end: SharedEnd, run: SharedRun, optimizers: Sequence[Optimizer]) -> None:
        self.tell: Callable[..., None] = lambda *_: None
        """Sends the worker a message while it waits; set by the proxy."""
        self._control, self._worker = run.control, end.worker
        self._engine = GradientCalls(end, run, optimizers, self._tell)
        self._offers = {**self._engine.offers(), **SideCalls(end, self._tell).offers()}
        self.stream = PushStreamCalls(self, {name: self._offers[name] for name in OFFERED})
        self._before = [self._control.seconds[self._worker * ROW + column] for column in _NOTED]
        self._samples = self._control.counter(self._worker, SAMPLES)
        self._gradients = self._control.counter(self._worker, GRADIENTS)

    def _tell(self, *plain: Any) -> None:
        self.tell(*plain)

    @property
    def has_detached(self) -> bool:
        """Whether the worker has said that it has stopped training and may leave."""
        return self._engine.has_detached

    def handle(self, text: bytes) -> ReadCall:
        """Parse a call. Stores the worker's own seconds, samples, gradients and memory that come with it."""
        call = read(text, self._offers)
        if call.notes is not None:
            *seconds, samples, gradients, memory = numbers(call.notes, (int, float), len(_NOTED) + 3)
            counts = (samples, gradients, memory)
            if not all(map(math.isfinite, seconds)) or any(type(n) is not int or not 0 <= n < MOST for n in counts):
                raise ProtocolError("channel: received invalid numbers of seconds, samples, gradients or bytes")
            for column, before, spent in zip(_NOTED, self._before, seconds, strict=True):
                self._control.seconds[self._worker * ROW + column] = before + spent
            self._control.set_counter(self._worker, SAMPLES, self._samples + int(samples))
            self._control.set_counter(self._worker, GRADIENTS, self._gradients + int(gradients))
            self._control.seconds[self._worker * ROW + MEMORY] = memory
        return call


class PushStreamCalls:
    """The calls that a worker may make over its second connection, while it computes."""

    def __init__(self, calls: Calls, offers: Mapping[str, CallSpec]) -> None:
        self.tell: Callable[..., None] = lambda *_: None
        self._calls, self._offers = calls, offers

    @property
    def has_detached(self) -> bool:
        """As `Calls`."""
        return self._calls.has_detached

    def handle(self, text: bytes) -> ReadCall:
        """Parse a call."""
        return read(text, self._offers)


def most_text(workers: int) -> int:
    """Most bytes of a frame's text in this run: measures of all workers, or hyper-parameters."""
    return 65_536 + 16_384 * workers
