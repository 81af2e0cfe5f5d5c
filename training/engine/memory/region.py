"""Memory that all processes of a run share: anonymous and inherited by fork, so that nothing is left behind.

`Control` holds every number and lock; its size follows from the settings, so it is made before the fork. Parameters,
optimizer state and gradients are in `Memory` (`shared_memory.py`).
"""

import ctypes
import errno
import math
import mmap
import platform
from collections.abc import Callable
from time import monotonic, monotonic_ns
from typing import Final

from scalebook.training.engine.memory.lock import LOCK_BYTES, RobustMutex
from scalebook.training.engine.memory.row_log import COUNTERS
from scalebook.training.engine.rules.duration_summary import DurationSummary, took
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.worker_clock import Clock, RealClock

STILL_S: Final = 60.0
"""After so long without an event, a waiting worker reports what it waits for."""
SLICE_S: Final = 0.25  # the longest sleep without looking: bounds what a lost wake-up can cost
_FUTEX: Final = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221, "s390x": 238}
_WAIT: Final = 0
_WAKE: Final = 1
_EVERYBODY: Final = 2**31 - 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Event:
    """Lets processes sleep until something happens. `memory` is shared, writable, 8 bytes, and outlives this object.
    Made before the fork."""

    def __init__(self, memory: memoryview) -> None:
        self._word = memory[:4].cast("i")
        self._storage = ctypes.c_int.from_buffer(memory)
        self._number = _number(platform.machine())
        self._address = ctypes.c_void_p(ctypes.addressof(self._storage))
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self.calls = 0
        """Calls of `wake` in this process."""
        self.say: Callable[[str], None] = lambda text: None
        """Called with what this process waits for after STILL_S without an event, and with "" when it goes on."""

    def wake(self) -> None:
        """Wake all waiting processes. Call it after the change that they wait for."""
        self.calls += 1
        self._word[0] = monotonic_ns() & 0x7FFFFFFF  # two at the same time still write different words
        self._syscall(self._number, self._address, _WAKE, _EVERYBODY, None, None, 0)

    def wait(self, ready: Callable[[], bool], deadline_s: float, awaited: Callable[[], str]) -> None:
        """Sleep until `ready()`; TimeoutError with `awaited()` when there is no `wake` for `deadline_s` seconds."""
        moved, said = monotonic(), False
        while True:
            seen = self._word[0]
            if ready():
                if said:
                    self.say("")
                return
            self._sleep(seen)
            now = monotonic()
            if self._word[0] != seen:
                moved = now
                continue
            if now > moved + STILL_S and not said:
                self.say(awaited())
                said = True
            if now > moved + deadline_s:
                raise TimeoutError(f"{awaited()}: nothing happened for {deadline_s:g} s")

    def _sleep(self, seen: int) -> None:
        timeout = _Timespec(0, int(SLICE_S * 1e9))
        code = self._syscall(self._number, self._address, _WAIT, seen, ctypes.byref(timeout), None, 0)
        if code != 0 and ctypes.get_errno() not in (errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR):
            raise OSError(ctypes.get_errno(), "futex")


def _number(machine: str) -> int:
    """The number of the system call futex; OSError on a processor where it is not known."""
    if machine not in _FUTEX:
        raise OSError(errno.ENOSYS, f"futex: supported processors are {', '.join(_FUTEX)}, but this is {machine}")
    return _FUTEX[machine]


PER_OCTAVE: Final = 16
"""Bins between a time and twice that: each is 4 % wide."""
SHORTEST: Final = -24
"""Binary logarithm of the shortest time, in seconds: 60 ns."""
CLASSES: Final = 40 * PER_OCTAVE
"""Bins, up to 65,536 s; shorter or longer times count in the first or the last."""
SUMS: Final = 2


class DurationHistogram:
    """`counts` has CLASSES int64; `sums` has SUMS float64: the sums of the seconds and of their squares. One process
    writes at a time, all read."""

    def __init__(self, counts: memoryview, sums: "memoryview[float]") -> None:
        self._counts, self._sums = counts, sums

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a duration, `times` times."""
        seconds = max(seconds, 2.0**SHORTEST)
        place = int((math.log2(seconds) - SHORTEST) * PER_OCTAVE)
        self._counts[min(place, CLASSES - 1)] += times
        self._sums[0] += times * seconds
        self._sums[1] += times * seconds * seconds

    def took(self) -> DurationSummary | None:
        """A summary of everything counted; None before the first."""
        return took(
            [(_middle(place), count) for place, count in enumerate(self._counts.tolist()) if count], *self._sums
        )


def _middle(place: int) -> float:
    return float(2.0 ** ((place + 0.5) / PER_OCTAVE + SHORTEST))


LINE: Final = 64  # bytes; what different processes write lies on different cache lines
MOST_OPTIMIZERS: Final = 8
NOTE: Final = 256  # bytes of what a worker says that it waits for
BINS: Final = 128  # staleness 0..126, and more
# int64 counters of the run's head
STARTED: Final = 0  # 1: memory and first parameters are there; a worker that comes now joins a run under way
ALLOCATED: Final = 1  # 1: memory has its size
STOPPING: Final = 2  # 1: every worker is to end after its present step
# int64 counters of one worker's row, written by that worker, by the monitor when it is dead
SAMPLES: Final = 0
ARRIVALS: Final = 1  # rendezvous reached
FINISHED: Final = 2  # 1: will not push any more
LOST: Final = 3  # 1: its process has died
DIGEST: Final = 4  # of the plan that this worker computed
RESTING: Final = 5  # not 0: has nothing to compute at present, for the reasons below; rules do not count on it
GRADIENTS: Final = 6  # handed to its clients: summed, averaged, dropped, or stepped with by itself
ROW: Final = 8
# bits of RESTING
NO_DATA: Final = 1
MEETING: Final = 2  # waits for others between two batches; who completes the roll takes it back
# float64 counters of one worker's row, seconds
COMPUTE: Final = 0
WAIT: Final = 1
COMMUNICATE: Final = 2
DATA: Final = 3
MEMORY: Final = 4  # not seconds: the most bytes that its process has held, or has allocated on its GPU
# int64 counters of one worker at one shard
APPLIED: Final = 0
DROPPED: Final = 1
DUPLICATES: Final = 2
PUSHED: Final = 3  # bytes of gradients handed in
PULLED: Final = 4  # bytes of parameters taken
MESSAGES: Final = 5  # sent to other peers
FIRST_BIN: Final = 8
METER: Final = FIRST_BIN + BINS
# float64 counters of one worker at one shard
AGE: Final = 0  # seconds between pull and application, summed
DRIFT: Final = 1  # ||w - w_base||, summed
DRIFTS: Final = 2  # how many norms are in the sum
GAUGE: Final = 8
SPREAD_BYTES: Final = sum(-(-8 * count // LINE) * LINE for count in (CLASSES, SUMS))


class _Carver:
    """Hands out consecutive parts of one mapping, each beginning on a cache line."""

    def __init__(self, size: int) -> None:
        self._memory = memoryview(mmap.mmap(-1, size))
        self._at = 0

    def bytes(self, size: int) -> memoryview:
        part = self._memory[self._at : self._at + size]
        self._at += -(-size // LINE) * LINE
        assert self._at <= len(self._memory)
        return part

    def ints(self, count: int) -> memoryview:
        return self.bytes(8 * count).cast("q")

    def floats(self, count: int) -> "memoryview[float]":
        return self.bytes(8 * count).cast("d")

    def spread(self) -> DurationHistogram:
        return DurationHistogram(self.ints(CLASSES), self.floats(SUMS))


class ShardCounters:
    """The numbers of one shard. `newest` is one int64, so that an update is published by one store.

    A shard has several buffers, each for one version of its parameters. `held[w]`: number of the buffer that worker w's
    replica is or was copied from, -1 for none. `kept[w]`: which of two residuals of worker w counts (the lowest bit),
    and since which push. `applied[buffer * workers + w]`: the last push of worker w that is part of the version in that
    buffer. `pushed[w]`: its last push of which this shard's part lies in its slot, whole, for the server. `bases[w]`:
    the version that worker w holds, where there are sparse tables, -1 for none; `log`: of their row log. `served`: how
    long a push took to be applied, under `apply_lock`.

    Two locks: who makes the next version, or reads the optimizer's state, has `apply_lock` from beginning to end;
    `version_lock` is had for microseconds, to choose the buffer to write to, to publish, and to hold the newest
    version. So whoever pulls waits for no update.
    """

    def __init__(self, carve: _Carver, workers: int, buffers: int) -> None:
        self.apply_lock = RobustMutex(carve.bytes(LOCK_BYTES))
        self.version_lock = RobustMutex(carve.bytes(LOCK_BYTES))
        self.newest = carve.ints(1)
        self.held = carve.ints(workers)
        self.applied = carve.ints(workers * buffers)
        self.pushed = carve.ints(workers)
        self.kept = carve.ints(workers)
        self.bases = carve.ints(workers)
        self.log = carve.ints(COUNTERS)
        self.meters = carve.ints(workers * METER)
        self.gauges = carve.floats(workers * GAUGE)
        self.served = carve.spread()
        for worker in range(workers):
            self.held[worker] = self.bases[worker] = -1

    @staticmethod
    def size(workers: int, buffers: int) -> int:
        counters = [1, *[workers] * 4, COUNTERS, workers * buffers, workers * METER, workers * GAUGE]
        return 2 * LOCK_BYTES + SPREAD_BYTES + sum(-(-8 * count // LINE) * LINE for count in counters)


EPOCHS: Final = 512
"""Memberships of peers that are remembered, each until this many later ones."""


class PeerCounters:
    """What the peers of one optimizer share, where workers exchange with each other instead of with shards.

    Each peer has two buffers. `tags[2 * w + b]`: the round whose values buffer b of peer w has, NOTHING while it is
    written; `weights[2 * w + b]`: their push-sum weight; `sizes[2 * w + b]`: their
    bytes as they travel. `current[w]`: which of the two has its newest values.
    `published[w]`: the last round that it has published, or, where nobody waits, how often its values have changed.
    `taken[w]`: the last round whose values it has read. `entered[w]`: the first round of its present membership.
    Of pairs, which have three buffers each: `held[w]`: the one that w computes with; `owner[w]`: who has its lock, or
    had it last; `broken[w]`: 1 if w died while it wrote its own values.
    `mail[2 * w + b]`: the weight in a buffer of its mailbox; `mail_current[w]`: which of the two counts;
    `mail_count[w]`: messages in it.

    `spread`: as in `Consensus`, of when the mean was taken last; a weight of 0: not yet.

    `memberships[0]`: how many there have been. `first[e]` and `members[e * workers + w]`: who takes part from which
    round on, in place e of EPOCHS. They change under the run's admission lock. `locks`: one for each peer.
    """

    NOTHING: Final = -(1 << 40)

    def __init__(self, carve: _Carver, workers: int) -> None:
        self.tags = carve.ints(2 * workers)
        self.weights = carve.floats(2 * workers)
        self.sizes = carve.ints(2 * workers)
        self.current = carve.ints(workers)
        self.published = carve.ints(workers)
        self.taken = carve.ints(workers)
        self.entered = carve.ints(workers)
        self.held = carve.ints(workers)
        self.owner = carve.ints(workers)
        self.broken = carve.ints(workers)
        self.mail = carve.floats(2 * workers)
        self.mail_current = carve.ints(workers)
        self.mail_count = carve.ints(workers)
        self.spread = carve.floats(4)
        self.memberships = carve.ints(1)
        self.first = carve.ints(EPOCHS)
        self.members = carve.bytes(EPOCHS * workers)
        self.locks = [RobustMutex(carve.bytes(LOCK_BYTES)) for _ in range(workers)]
        self.workers = workers
        self.memberships[0] = self.first[0] = 1
        for worker in range(workers):
            self.members[worker] = self.entered[worker] = 1
            for buffer in (0, 1):
                self.tags[2 * worker + buffer] = self.NOTHING
                self.weights[2 * worker + buffer] = 1.0

    @staticmethod
    def size(workers: int) -> int:
        counts = [*[2 * workers] * 4, *[workers] * 9, 4, 1, EPOCHS]
        own = sum(-(-8 * count // LINE) * LINE for count in counts)
        return own + -(-EPOCHS * workers // LINE) * LINE + workers * LOCK_BYTES


class PartitionCounters:
    """The counters of one optimizer: its admission, its workers' clocks, the slots of gathered gradients, its shards.

    `admission[0]` packs version, whether the round is being applied, and how many gradients it has, so that one store
    changes all. `admission[1]` is the version that the run began with. `order[i]` is the slot of a round's i-th
    gradient. Each slot records the worker and push that filled it, whether the gradient counts (`valid`), the versions
    and buffers it was computed from (by shard), and when these were pulled (s). `peers`: where there are any.
    """

    def __init__(
        self, carve: _Carver, workers: int, shards: int, slots: int, buffers: int, has_peers: bool = False
    ) -> None:
        self.used = carve.ints(1)  # 1: there is such an optimizer
        self.admission = carve.ints(2)
        self.clocks = carve.ints(workers)  # pushes completed; -1: not let in yet
        self.begun = carve.ints(workers)  # the last push that the worker has begun
        self.steps = carve.ints(workers)  # that it has made by its own optimizer (`local`)
        self.since = carve.ints(workers)  # of these, since the last push that was complete
        self.admitted = carve.ints(workers)  # its gradients let through towards `max_updates`
        self.last_admitted = carve.ints(workers)  # the last push among them
        self.writing = carve.ints(workers)  # slot that the worker writes to; -1: none
        self.order = carve.ints(max(slots, 1))
        self.owner = carve.ints(max(slots, 1))
        self.seq = carve.ints(max(slots, 1))
        self.valid = carve.ints(max(slots, 1))
        self.base = carve.ints(max(slots, 1) * shards)
        self.buffer = carve.ints(max(slots, 1) * shards)
        self.pulled = carve.floats(max(slots, 1))
        self.shards = [ShardCounters(carve, workers, buffers) for _ in range(shards)]
        self.peers = PeerCounters(carve, workers) if has_peers else None
        for worker in range(workers):
            self.clocks[worker] = self.writing[worker] = -1

    @staticmethod
    def size(workers: int, shards: int, slots: int, buffers: int, has_peers: bool = False) -> int:
        slots = max(slots, 1)
        counters = [1, 2, *[workers] * 7, *[slots] * 4, slots * shards, slots * shards, slots]
        own = sum(-(-8 * count // LINE) * LINE for count in counters)
        own += PeerCounters.size(workers) if has_peers else 0
        return own + shards * ShardCounters.size(workers, buffers)


class Control:
    """Counters, flags, times, locks. Made before the fork; each counter has one writer or is written under a lock.

    `admission_lock` guards admission, clocks and slots. Lock order: admission, then a shard's `apply_lock`, then its
    `version_lock`. No process applies to two shards at a time; a process that reads several takes their locks in order.
    """

    def __init__(self, workers: int, settings: Settings | None = None, clock: Clock | None = None) -> None:
        settings = settings or Settings()
        self.workers, self.settings = workers, settings
        self.slots = settings.slots(workers)
        extent = (workers, settings.shards, self.slots, settings.buffers(workers), settings.local.peers)
        size = LOCK_BYTES + 4 * LINE + 2 * 8 * ROW * workers + MOST_OPTIMIZERS * PartitionCounters.size(*extent)
        size += workers * (SPREAD_BYTES + NOTE)
        carve = _Carver(size)
        self.admission_lock = RobustMutex(carve.bytes(LOCK_BYTES))
        self.event = Event(carve.bytes(8))
        self.clock = clock or RealClock(self.event.wait)
        self.head = carve.ints(8)
        self.counters = carve.ints(ROW * workers)
        self.seconds = carve.floats(ROW * workers)
        self.partition_counters = [PartitionCounters(carve, *extent) for _ in range(MOST_OPTIMIZERS)]
        self.own = [carve.spread() for _ in range(workers)]
        """Each worker's seconds between two pushes, without waiting and applying."""
        self._notes = [carve.bytes(NOTE) for _ in range(workers)]

    def set_wait(self, worker: int, text: str) -> None:
        """Store what the worker has waited for without success for a while; "" when it goes on. Read by `notes`, in any
        process."""
        self._notes[worker][:] = text.encode()[:NOTE].ljust(NOTE, b"\0")

    def notes(self) -> dict[int, str]:
        """By worker, what the waiting workers have stored."""
        texts = [bytes(note).rstrip(b"\0").decode(errors="replace") for note in self._notes]
        return {worker: text for worker, text in enumerate(texts) if text}

    def counter(self, worker: int, counter: int) -> int:
        """One int64 counter of a worker."""
        return self.counters[worker * ROW + counter]

    def set_counter(self, worker: int, counter: int, value: int) -> None:
        """Set one int64 counter of a worker."""
        self.counters[worker * ROW + counter] = value

    def column(self, counter: int) -> list[int]:
        """One int64 counter of every worker."""
        return self.counters[counter::ROW].tolist()

    def living(self) -> list[int]:
        """The workers whose process has not died, including finished ones."""
        return [worker for worker, lost in enumerate(self.column(LOST)) if not lost]

    def training(self) -> list[int]:
        """The workers that may still push."""
        columns = self.column(LOST), self.column(FINISHED)
        if not any(map(any, columns)):
            return list(range(self.workers))
        gone = zip(*columns, strict=True)
        return [worker for worker, (lost, finished) in enumerate(gone) if not (lost or finished)]

    def active(self) -> list[int]:
        """The training workers that do not rest."""
        columns = self.column(LOST), self.column(FINISHED), self.column(RESTING)
        if not any(map(any, columns)):
            return list(range(self.workers))
        gone = zip(*columns, strict=True)
        return [worker for worker, (lost, finished, resting) in enumerate(gone) if not (lost or finished or resting)]
