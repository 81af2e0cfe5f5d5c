"""What the workers of a run exchange beside gradients: messages at the same call of each worker, and signals."""

import mmap
import os
import struct
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

from scalebook.training.engine.coordination.admission import let_in_again
from scalebook.training.engine.coordination.membership import leave
from scalebook.training.engine.memory.lock import LOCK_BYTES, RobustMutex
from scalebook.training.engine.memory.region import LINE, MEETING, RESTING, STOPPING, Control
from scalebook.training.engine.memory.shared_memory import anonymous_file
from scalebook.training.engine.memory.uncopied import Uncopied

PATH_BYTES: Final = 4096  # PATH_MAX of Linux
MOST_PLATEAUS: Final = 65_536
"""Most steps of plateau schedulers in one run: one or a few for each validation."""
_PATH_LENGTH: Final = 0
_PLATEAUS: Final = 1
_BEGUN: Final = 2
_HEAD_BYTES: Final = 64
_ENTRY: Final = struct.Struct("qd")


class PlateauStep(NamedTuple):
    """What worker 0 passed to one plateau scheduler: the scheduler's number, and its metric's value."""

    scheduler: int
    metric: float


class SharedSignals:
    """Signals in anonymous memory, made before the fork: 1 MiB, of which only what is written takes pages. `stop` lies
    in the run's `control`, where rules see it.

    Every process may set `stop` and `begun`. Worker 0 alone writes the rest, its length last, so that no reader sees
    half.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._map = mmap.mmap(-1, _HEAD_BYTES + PATH_BYTES + MOST_PLATEAUS * _ENTRY.size)
        self._head = memoryview(self._map)[:_HEAD_BYTES].cast("q")

    @property
    def stop(self) -> bool:
        """Whether every worker is to end after its present step."""
        return bool(self._control.head[STOPPING])

    def ask_to_stop(self) -> None:
        """Tell every worker to end after its present step."""
        self._control.head[STOPPING] = 1

    @property
    def begun(self) -> bool:
        """Whether all workers have come to the start of training."""
        return bool(self._head[_BEGUN])

    def mark_begun(self) -> None:
        """Note that all workers have come to the start of training."""
        self._head[_BEGUN] = 1

    def note_checkpoint(self, path: str | Path) -> None:
        """Remember the newest checkpoint, so that others can name it when worker 0 is dead."""
        text = os.fsencode(Path(path).absolute())[:PATH_BYTES]
        self._head[_PATH_LENGTH] = 0
        self._map[_HEAD_BYTES : _HEAD_BYTES + len(text)] = text
        self._head[_PATH_LENGTH] = len(text)

    def checkpoint(self) -> Path | None:
        """The newest checkpoint that was noted, if the file exists."""
        text = self._map[_HEAD_BYTES : _HEAD_BYTES + self._head[_PATH_LENGTH]]
        path = Path(os.fsdecode(text))
        return path if text and path.is_file() else None

    def add_plateau_step(self, step: PlateauStep) -> None:
        """Called by worker 0. RuntimeError when there is no room for more."""
        count = self._head[_PLATEAUS]
        if count == MOST_PLATEAUS:
            raise RuntimeError(f"lr_scheduler: more than {MOST_PLATEAUS} steps of ReduceLROnPlateau in one run")
        _ENTRY.pack_into(self._map, self._entry(count), *step)
        self._head[_PLATEAUS] = count + 1

    def plateau_steps(self, since: int) -> list[PlateauStep]:
        """All steps from number `since` on."""
        count = self._head[_PLATEAUS]
        return [PlateauStep(*_ENTRY.unpack_from(self._map, self._entry(i))) for i in range(since, count)]

    @staticmethod
    def _entry(index: int) -> int:
        return _HEAD_BYTES + PATH_BYTES + index * _ENTRY.size


IN_BATCH: Final = 1 << 60
"""Places from here on are inside a batch; those below are boundaries between batches, in order."""
AFTER: Final = 0  # the place of hooks that follow training
POSITIONS: Final = 1 << 20
"""Places at one boundary."""


class Boundary(IntEnum):
    """Between which batches of an epoch a place lies, in program order."""

    START = 0  # before its first
    METRICS = 1  # after its last: what it logged is summed up
    END = 2  # then its hooks run
    OVER = 3  # they have run


# int64 counters of the head
_HELD: Final = 0  # number of the last meeting whose roll is complete
# int64 counters of one worker; written by that worker, those of the roll under the lock
_PHASE: Final = 0
_WAITS: Final = 1  # 1: has come, and has not been served
_PLACE: Final = 2
_BOX: Final = 3  # which of its two boxes has its newest message
_LENGTH: Final = 4
_ROLL: Final = 5  # the last meeting on whose roll it is
_READ: Final = 6  # the last meeting whose messages it has read
_ROLL_BOX: Final = 7
_ROLL_LENGTH: Final = 8
_KEPT: Final = 9  # messages of before training
_STREAM: Final = 10  # digest of the first batch of its stream, 0 for none
_PASSED: Final = 11  # the last place that it has gone by, 0 for none
_ROW: Final = 16


class Phase(IntEnum):
    """How far a worker is; this decides who is waited for."""

    EXPECTED = 0
    HELD_BACK = 1  # until worker 0 has warmed up
    TRAINING = 2
    RESTING = 3  # has no data at present
    GONE = 4  # past the last hook of training


class SharedExchange(Uncopied):
    """A `MessageExchange` over anonymous memory and files, made before the fork. `of` makes a worker's own; this object
    only reads what workers sent before training (a server process does)."""

    def __init__(self, control: Control) -> None:
        self._control = control
        workers = control.workers
        memory = memoryview(mmap.mmap(-1, LOCK_BYTES + LINE + 8 * _ROW * workers))
        self._lock = RobustMutex(memory[:LOCK_BYTES])
        self._head = memory[LOCK_BYTES : LOCK_BYTES + LINE].cast("q")
        self._counters = memory[LOCK_BYTES + LINE :].cast("q")
        self._boxes = [[anonymous_file(f"box {worker} {box}") for box in range(2)] for worker in range(workers)]
        self._kept = [anonymous_file(f"messages {worker}") for worker in range(workers)]
        self._worker: int | None = None
        self._deadline_s = 600.0
        self._calls = 0  # of before training, in this process

    def of(self, worker: int, deadline_s: float) -> "SharedExchange":
        """The exchange of worker `worker`, over the same memory; it has a `close` of its own."""
        own = SharedExchange.__new__(SharedExchange)
        vars(own).update(vars(self), _worker=worker, _deadline_s=deadline_s, _calls=0)
        own.forget(worker)
        return own

    def forget(self, worker: int) -> None:
        """Drop a dead worker that is about to be started again from all waits and exchanges."""
        for counter in (_PHASE, _WAITS, _ROLL, _READ, _PASSED):
            self._set(worker, counter, 0)

    def set_phase(self, phase: Phase) -> None:
        """Set how far this worker is."""
        assert self._worker is not None
        self._set(self._worker, _PHASE, phase)
        self._control.event.wake()

    def pass_by(self, place: int) -> None:
        """Say that this worker makes no more calls at this boundary or an earlier one."""
        assert self._worker is not None
        self._set(self._worker, _PASSED, place)
        self._control.event.wake()

    def close(self) -> None:
        """Close this process's descriptors."""
        for descriptor in [*(box for pair in self._boxes for box in pair), *self._kept]:
            os.close(descriptor)
        self._boxes, self._kept = [], []

    # --- before training: everybody comes, in the order of the program; what was said is kept for who is late ------

    def gather_before_training(self, message: bytes, what: str) -> dict[int, bytes]:
        """Every worker's message at this call."""
        number, mine = self._calls, self._worker
        self._calls += 1
        if mine is not None and self._counter(mine, _KEPT) <= number:
            descriptor = self._kept[mine]
            os.pwrite(descriptor, struct.pack("q", len(message)) + message, os.fstat(descriptor).st_size)
            self._set(mine, _KEPT, number + 1)
            self._control.event.wake()
        self._wait(lambda: [w for w in self._control.living() if self._counter(w, _KEPT) <= number], what)
        came = [w for w in range(self._control.workers) if self._counter(w, _KEPT) > number]
        return {worker: self._kept_message(worker, number) for worker in came}

    def _kept_message(self, worker: int, number: int) -> bytes:
        offset = 0
        for _ in range(number):
            offset += 8 + self._length_at(worker, offset)
        return os.pread(self._kept[worker], self._length_at(worker, offset), offset + 8)

    def _length_at(self, worker: int, offset: int) -> int:
        length: int = struct.unpack("q", os.pread(self._kept[worker], 8, offset))[0]
        return length

    # --- from then on ----------------------------------------------------------------------------------------------

    def all_gather(self, place: int, message: bytes, what: str, meanwhile: Callable[[], None]) -> dict[int, bytes]:
        """The messages of all members of this exchange, by worker. `meanwhile` is called whenever something happens.

        A worker that waits between two batches has no gradient to give, so rules do not count on it until the exchange
        is complete: the last round of an epoch is of those that still have a batch. `TimeoutError`, naming who is
        missing, when nothing happens for the deadline.
        """
        mine = self._worker
        assert mine is not None
        box = 1 - self._counter(mine, _BOX)
        os.pwrite(self._boxes[mine][box], message, 0)
        for counter, value in ((_BOX, box), (_LENGTH, len(message)), (_PLACE, place), (_WAITS, 1)):
            self._set(mine, counter, value)
        self._control.event.wake()

        def missing() -> list[int]:
            meanwhile()
            if not self._served(mine):
                self._close_roll()
                if place < IN_BATCH and not self._control.counter(mine, RESTING):
                    self._step_aside(mine)
            return [] if self._served(mine) else self._missing() or [mine]

        self._wait(missing, what)
        held = self._head[_HELD]
        roll = [worker for worker in range(self._control.workers) if self._counter(worker, _ROLL) == held]
        messages = {
            w: os.pread(self._boxes[w][self._counter(w, _ROLL_BOX)], self._counter(w, _ROLL_LENGTH), 0) for w in roll
        }
        self._set(mine, _WAITS, 0)
        self._set(mine, _READ, held)
        self._control.event.wake()
        return messages

    def _served(self, worker: int) -> bool:
        """Whether the last complete exchange includes this worker, and it has not read the messages yet."""
        held = self._head[_HELD]
        return held > 0 and self._counter(worker, _ROLL) == held and self._counter(worker, _READ) < held

    def _missing(self) -> list[int]:
        """The workers that must come, or read, before the exchange is complete; only while somebody waits."""
        living = self._control.living()
        reading = [w for w in living if self._served(w)]
        waiting = self._waiting(living)
        if reading or not waiting:
            return reading
        return [worker for worker in self._needed(self._top(waiting), living) if worker not in waiting]

    def _needed(self, place: int, living: list[int]) -> list[int]:
        if place == AFTER:
            return living
        if place >= IN_BATCH:
            active, in_it = self._control.active(), (Phase.EXPECTED, Phase.TRAINING)
            return [worker for worker in active if self._counter(worker, _PHASE) in in_it]
        not_yet_or_no_more = (Phase.HELD_BACK, Phase.GONE)
        come = [worker for worker in living if self._counter(worker, _PHASE) not in not_yet_or_no_more]
        return [worker for worker in come if not 0 < self._counter(worker, _PASSED) <= place]

    def _waiting(self, living: list[int]) -> list[int]:
        return [worker for worker in living if self._counter(worker, _WAITS) and not self._served(worker)]

    def _top(self, waiting: list[int]) -> int:
        return max(self._counter(worker, _PLACE) for worker in waiting)

    def _close_roll(self) -> None:
        """Complete the exchange if all members are there. If this process dies before the last line, nothing it wrote
        counts."""
        if self._missing():
            return
        self._lock.acquire(self._deadline_s)
        try:
            living = self._control.living()
            waiting = self._waiting(living)
            if not waiting or self._missing():
                return
            number, top = self._head[_HELD] + 1, self._top(waiting)
            on_roll = [worker for worker in waiting if self._counter(worker, _PLACE) == top]
            for worker in range(self._control.workers):
                self._set(worker, _ROLL, number if worker in on_roll else 0)
                if worker in on_roll:
                    self._set(worker, _ROLL_BOX, self._counter(worker, _BOX))
                    self._set(worker, _ROLL_LENGTH, self._counter(worker, _LENGTH))
            let_in_again(self._control, on_roll, self._deadline_s)
            self._head[_HELD] = number
        finally:
            self._lock.release()
        self._control.event.wake()

    def _step_aside(self, worker: int) -> None:
        """Make rules not count on this worker, unless it has been served meanwhile."""
        self._lock.acquire(self._deadline_s)
        try:
            if not self._served(worker):
                self._control.set_counter(worker, RESTING, MEETING)
                leave(self._control, worker, self._deadline_s)
        finally:
            self._lock.release()
        self._control.event.wake()

    # --- streams -----------------------------------------------------------------------------------------------------

    def streams_differ(self, digest: int) -> bool:
        """Whether the workers' data begin with different batches; `digest` (not 0) is of this worker's."""
        if self._worker is not None and not self._counter(self._worker, _STREAM):
            self._set(self._worker, _STREAM, digest)
            self._control.event.wake()
        self._wait(lambda: [w for w in self._control.living() if not self._counter(w, _STREAM)], "the first batch")
        return len({self._counter(w, _STREAM) for w in range(self._control.workers)} - {0}) > 1

    # --- counters ----------------------------------------------------------------------------------------------------

    def _wait(self, missing: Callable[[], list[int]], what: str) -> None:
        def why() -> str:
            who = "a server" if self._worker is None else f"worker {self._worker}"
            return f"{who} waits at {what} for workers {missing()}, which have not arrived"

        self._control.event.wait(lambda: not missing(), self._deadline_s, why)

    def _counter(self, worker: int, counter: int) -> int:
        return self._counters[worker * _ROW + counter]

    def _set(self, worker: int, counter: int, value: int) -> None:
        self._counters[worker * _ROW + counter] = value


def boundary(epoch: int, kind: Boundary, position: int) -> int:
    """The place of the `position`-th call at a boundary."""
    return IN_BATCH - 1 - ((epoch * len(Boundary) + kind) * POSITIONS + min(position, POSITIONS - 1))
