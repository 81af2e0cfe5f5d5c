"""Which worker takes which batch of which epoch: every batch once, whatever the workers' speed, and again only after a
death.

Whoever takes a batch promises to push its gradient. The batch stays in the worker's shared row until the worker calls
`mark_done`, so that the batches of a dead worker are known and handed out again.
"""

import mmap
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from scalebook.training.engine.memory.lock import LOCK_BYTES, RobustMutex
from scalebook.training.engine.memory.uncopied import Uncopied
from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.settings import Deal

Write = tuple[int, int]
"""A counter's index and its new value."""
MOST_WRITES: Final = 8
_COUNT: Final = 0  # writes listed; 0: none, or all carried out
_LIST: Final = 1
_LOG_HEADER: Final = _LIST + 2 * MOST_WRITES


class RedoLog:
    """`size` int64 counters, zero at first, changed by groups of writes that happen all or not at all.

    The writes are listed, a last value marks the list as complete, then they are carried out. A process killed before
    that mark has changed nothing. After it, the next process that takes the lock carries the list out again, which is
    harmless. Made before the fork, in anonymous memory; waiting for the lock ends in `LockTimeout` after `deadline_s`.
    """

    def __init__(self, size: int, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._map = mmap.mmap(-1, LOCK_BYTES + 8 * (_LOG_HEADER + size))
        memory = memoryview(self._map)
        self._lock = RobustMutex(memory[:LOCK_BYTES])
        self._listed = memory[LOCK_BYTES : LOCK_BYTES + 8 * _LOG_HEADER].cast("q")
        self.counters = memory[LOCK_BYTES + 8 * _LOG_HEADER :].cast("q")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, which reading and committing need. Not re-entrant."""
        self._lock.acquire(self._deadline_s)
        try:
            if self._listed[_COUNT]:
                self._carry_out()
            yield
        finally:
            self._lock.release()

    def commit(self, writes: list[Write]) -> None:
        """Change counters, all of them or none; under the lock."""
        assert len(writes) <= MOST_WRITES
        for number, (index, value) in enumerate(writes):
            self._listed[_LIST + 2 * number] = index
            self._listed[_LIST + 2 * number + 1] = value
        self._listed[_COUNT] = len(writes)
        self._carry_out()

    def _carry_out(self) -> None:
        for number in range(self._listed[_COUNT]):
            self.counters[self._listed[_LIST + 2 * number]] = self._listed[_LIST + 2 * number + 1]
        self._listed[_COUNT] = 0


MOST_TAKEN: Final = 4096
"""Most batches of one worker that wait for their push: prefetched or accumulated."""
EPOCHS: Final = 1024
"""How many epochs the fastest worker may be ahead before the rest of the oldest epoch is forgotten."""
# int64 counters of the header
_NEWEST: Final = 0  # 1 + the newest epoch that a worker has begun
_HEADER: Final = 8
# int64 counters of one epoch in the ring, under the lock
_TAG: Final = 0  # 1 + epoch
_BATCHES: Final = 1
_NEXT: Final = 2  # of the pool: batches that belong to nobody in particular
_DEALT: Final = 3  # batches that belong to worker 0, 1, ... in turn
_EPOCH_COUNTERS: Final = 4
# int64 counters of one worker's row, under the lock but for _DONE, which the worker alone writes
_EPOCH: Final = 0  # 1 + the epoch it is in; 0 before the first
_SHARE_EPOCH: Final = 1  # its own share: the next batch is number _SHARE_STEP of its share of this epoch
_SHARE_STEP: Final = 2
_DONE: Final = 3  # batches pushed. A worker's batches are numbered from 0; number n is in slot n % MOST_TAKEN
_HANDED: Final = 4  # batches taken by the present process of this worker end here; those of a dead one come after
_TAKEN: Final = 5  # end of the latter
_GONE: Final = 6  # 1: died, or will not take any more
_SLOTS: Final = 8
_SHIFT: Final = 32  # a slot is epoch << 32 | batch


class TakenBatch(NamedTuple):
    """One batch of one epoch."""

    epoch: int
    batch: int


class Cursor(Uncopied):
    """The position in the data, shared by all workers. Made before the fork, in anonymous memory.

    An epoch has `batches` batches. Some of them, or all, belong to a worker (`Deal`), and the others are first come,
    first served. Batches that a dead worker had taken or owned are open to all.

    A process may be killed anywhere in here: each call happens wholly or not at all (`RedoLog`).
    """

    def __init__(self, workers: int, deadline_s: float = 60.0) -> None:
        self.workers = workers
        self._ring = _HEADER
        self._rows = _HEADER + EPOCHS * _EPOCH_COUNTERS
        self._journal = RedoLog(self._rows + workers * (_SLOTS + MOST_TAKEN), deadline_s)
        self._locked, self._commit, self._counters = self._journal.locked, self._journal.commit, self._journal.counters

    # --- what a worker does ----------------------------------------------------------------------------------------

    def enter_epoch(self, worker: int, epoch: int, batches: int, deal: Deal) -> bool:
        """The worker enters an epoch; calling it again changes nothing. Earlier epochs are over for it.

        False, and it has not entered: all batches have owners, of which it is none and none has come there yet. A
        worker with nothing to compute would run ahead of the others, until the ring forgets their epochs.

        ValueError when another worker has begun this epoch with another number of batches.
        """
        offset, row = self._epoch_at(epoch), self._row(worker)
        with self._locked():
            tag, writes = self._counters[offset + _TAG], [(row + _EPOCH, epoch + 1)]
            if tag == epoch + 1 and self._counters[offset + _BATCHES] != batches:
                raise ArgumentError(
                    "contradiction",
                    "data",
                    f"epoch {epoch} has {batches} batches in worker {worker} but "
                    f"{self._counters[offset + _BATCHES]} in another worker",
                    "Make the data's length the same in every worker.",
                )
            dealt = min(batches, self._dealt(deal, batches))
            entitled = self.workers if dealt < batches else min(self.workers, dealt)
            if worker >= entitled and epoch >= self._counters[_NEWEST] and self._anybody_lives(entitled):
                return False
            if tag < epoch + 1:
                writes += [
                    (offset + _TAG, epoch + 1),
                    (offset + _BATCHES, batches),
                    (offset + _NEXT, dealt),
                    (offset + _DEALT, dealt),
                ]
            if self._counters[row + _SHARE_EPOCH] < epoch:
                writes += [(row + _SHARE_EPOCH, epoch), (row + _SHARE_STEP, 0)]
            writes.append((_NEWEST, max(self._counters[_NEWEST], epoch + 1)))
            self._commit(writes)
            return True

    def take_batch(self, worker: int) -> TakenBatch | None:
        """The next batch for this worker: of its epoch, or of an earlier one that a dead worker left unfinished.

        In this order: batches taken by dead workers, the worker's own share, shares of dead workers, the pool. None:
        nothing is left now, though a later death can bring something back (`outstanding`).
        """
        row = self._row(worker)
        with self._locked():
            epoch = self._counters[row + _EPOCH] - 1
            assert epoch >= 0, "take_batch before enter_epoch"
            available = self._returned(worker, epoch) or self._owned(worker, epoch) or self._pooled(epoch)
            if available is None:
                return None
            taken, writes = available
            self._commit(writes + ([] if (row + _HANDED) in dict(writes) else self._promise(row, taken)))
            return taken

    def mark_done(self, worker: int, count: int = 1) -> None:
        """The gradients of the worker's oldest `count` batches have been pushed. Only by the worker itself."""
        row = self._row(worker)
        done = self._counters[row + _DONE] + count
        assert done <= self._counters[row + _HANDED], "more done than taken"
        self._counters[row + _DONE] = done

    def outstanding(self, besides: Collection[int] = ()) -> int:
        """Batches that living workers other than `besides` have taken and not done, plus 1 for each of these workers
        that has not finished its own share. While this is not 0, a death can bring batches back."""
        with self._locked():
            newest, total = self._counters[_NEWEST] - 1, 0
            for other in range(self.workers):
                row = self._row(other)
                if other in besides or self._counters[row + _GONE]:
                    continue
                total += self._counters[row + _HANDED] - self._counters[row + _DONE]
                total += self._share(other, newest) is not None
            return total

    def progress(self) -> int:
        """A number that grows whenever a worker takes a batch or pushes; deadlines of waits for other workers use
        it."""
        return sum(
            self._counters[self._row(worker) + counter]
            for worker in range(self.workers)
            for counter in (_DONE, _TAKEN, _EPOCH)
        )

    # --- what the monitor does -------------------------------------------------------------------------------------

    def mark_dead(self, worker: int) -> None:
        """The worker has died, or takes no more: its unfinished batches and its share are open to all."""
        row = self._row(worker)
        with self._locked():
            self._commit([(row + _GONE, 1), (row + _HANDED, self._counters[row + _DONE])])

    def rejoin(self, worker: int) -> None:
        """A new process replaces a dead worker: what nobody has taken of its share meanwhile is its own again."""
        row = self._row(worker)
        with self._locked():
            self._commit([(row + _GONE, 0), (row + _EPOCH, 0), (row + _HANDED, self._counters[row + _DONE])])

    # --- checkpoints -----------------------------------------------------------------------------------------------

    def state(self) -> dict[int, list[tuple[int, int]]]:
        """What is not done: by epoch, in order, ranges [start, stop) of batches; none for a finished epoch.

        Epochs that no worker has begun are absent, and so are finished ones before the slowest worker's.
        """
        with self._locked():
            rows = [self._row(worker) for worker in range(self.workers)]
            present = [self._counters[row + _EPOCH] - 1 for row in rows if not self._counters[row + _GONE]]
            slowest = max(0, min(present, default=0))  # one that has not begun yet goes through all epochs
            left: dict[int, set[int]] = {}
            for slot in range(EPOCHS):
                epoch = self._counters[self._ring + slot * _EPOCH_COUNTERS + _TAG] - 1
                if epoch >= 0:
                    left[epoch] = self._not_taken(epoch, pool=epoch >= slowest)
            for row in rows:
                for number in range(self._counters[row + _DONE], self._counters[row + _TAKEN]):
                    taken = self._slot(row, number)
                    left.setdefault(taken.epoch, set()).add(taken.batch)
            return {epoch: _ranges(left[epoch]) for epoch in sorted(left) if left[epoch] or epoch >= slowest}

    # --- under the lock --------------------------------------------------------------------------------------------

    def _promise(self, row: int, taken: TakenBatch) -> list[Write]:
        """Append to the worker's batches; the first one that an earlier process left there makes room."""
        done, handed, end = (self._counters[row + counter] for counter in (_DONE, _HANDED, _TAKEN))
        if end - done >= MOST_TAKEN:
            raise ArgumentError(
                "contradiction",
                "trainer.accumulate_grad_batches",
                f"{MOST_TAKEN} batches wait for their update, and no more can wait",
                "Accumulate fewer batches, or let the loader prefetch fewer batches.",
            )
        return [
            (self._slot_at(row, end), self._counters[self._slot_at(row, handed)]),
            (self._slot_at(row, handed), taken.epoch << _SHIFT | taken.batch),
            (row + _HANDED, handed + 1),
            (row + _TAKEN, end + 1),
        ]

    def _returned(self, worker: int, epoch: int) -> tuple[TakenBatch, list[Write]] | None:
        """A batch of this epoch or an earlier one, taken by a process that is dead now."""
        mine = self._row(worker)
        for other in (worker, *range(self.workers)):
            row = self._row(other)
            first, end = self._counters[row + _HANDED], self._counters[row + _TAKEN]
            for number in range(first, end):
                taken = self._slot(row, number)
                if taken.epoch > epoch:
                    continue
                hole, packed = self._slot_at(row, number), self._counters[self._slot_at(row, number)]
                if row == mine:  # it is in the right row already; let it change places with the first
                    first_at = self._slot_at(row, first)
                    return taken, [(hole, self._counters[first_at]), (first_at, packed), (row + _HANDED, first + 1)]
                return taken, [(hole, self._counters[self._slot_at(row, end - 1)]), (row + _TAKEN, end - 1)]
        return None

    def _owned(self, worker: int, epoch: int) -> tuple[TakenBatch, list[Write]] | None:
        """The next batch of the worker's own share, else of a dead worker's, up to this epoch."""
        dead = [other for other in range(self.workers) if self._counters[self._row(other) + _GONE] and other != worker]
        for owner in (worker, *dead):
            available = self._share(owner, epoch)
            if available is not None:
                taken, step = available
                row = self._row(owner)
                return taken, [(row + _SHARE_EPOCH, taken.epoch), (row + _SHARE_STEP, step + 1)]
        return None

    def _pooled(self, epoch: int) -> tuple[TakenBatch, list[Write]] | None:
        offset = self._epoch_at(epoch)
        batch = self._counters[offset + _NEXT]
        if self._counters[offset + _TAG] != epoch + 1 or batch >= self._counters[offset + _BATCHES]:
            return None
        return TakenBatch(epoch, batch), [(offset + _NEXT, batch + 1)]

    def _share(self, owner: int, epoch: int) -> tuple[TakenBatch, int] | None:
        """The next batch of the owner's share, up to this epoch, and its number in the share of its epoch."""
        row = self._row(owner)
        share_epoch, step = self._counters[row + _SHARE_EPOCH], self._counters[row + _SHARE_STEP]
        if share_epoch <= epoch - EPOCHS:
            share_epoch, step = epoch - EPOCHS + 1, 0
        while share_epoch <= epoch:
            if step < self._share_size(owner, share_epoch):
                return TakenBatch(share_epoch, owner + step * self.workers), step
            share_epoch, step = share_epoch + 1, 0
        return None

    def _dealt(self, deal: Deal, batches: int) -> int:
        return {Deal.NOBODY: 0, Deal.WORKER_0: 1, Deal.ONE_EACH: self.workers, Deal.IN_TURNS: batches}[deal]

    def _anybody_lives(self, below: int) -> bool:
        return not all(self._counters[self._row(worker) + _GONE] for worker in range(below))

    def _share_size(self, owner: int, epoch: int) -> int:
        offset = self._epoch_at(epoch)
        if self._counters[offset + _TAG] != epoch + 1:
            return 0
        return max(0, -(-(self._counters[offset + _DEALT] - owner) // self.workers))

    def _not_taken(self, epoch: int, pool: bool) -> set[int]:
        offset = self._epoch_at(epoch)
        left = set(range(self._counters[offset + _NEXT], self._counters[offset + _BATCHES])) if pool else set()
        for owner in range(self.workers):
            share_epoch, step = (self._counters[self._row(owner) + counter] for counter in (_SHARE_EPOCH, _SHARE_STEP))
            if share_epoch <= epoch:
                first = step if share_epoch == epoch else 0
                left |= {owner + n * self.workers for n in range(first, self._share_size(owner, epoch))}
        return left

    # --- where things are ------------------------------------------------------------------------------------------

    def _row(self, worker: int) -> int:
        return self._rows + worker * (_SLOTS + MOST_TAKEN)

    def _epoch_at(self, epoch: int) -> int:
        return self._ring + epoch % EPOCHS * _EPOCH_COUNTERS

    def _slot_at(self, row: int, number: int) -> int:
        return row + _SLOTS + number % MOST_TAKEN

    def _slot(self, row: int, number: int) -> TakenBatch:
        packed = self._counters[self._slot_at(row, number)]
        return TakenBatch(packed >> _SHIFT, packed & (1 << _SHIFT) - 1)


def _ranges(batches: set[int]) -> list[tuple[int, int]]:
    """A set of numbers as ranges [start, stop), in order."""
    ranges: list[tuple[int, int]] = []
    for batch in sorted(batches):
        if ranges and ranges[-1][1] == batch:
            ranges[-1] = (ranges[-1][0], batch + 1)
        else:
            ranges.append((batch, batch + 1))
    return ranges
