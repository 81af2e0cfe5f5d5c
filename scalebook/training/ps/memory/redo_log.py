"""Counters in shared memory that several processes change together, any of which may be killed at any instruction."""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from scalebook.training.ps.memory.lock import LOCK_BYTES, RobustMutex

Write = tuple[int, int]
"""A counter's index and its new value."""
MOST_WRITES: Final = 8
_COUNT: Final = 0  # writes listed; 0: none, or all carried out
_LIST: Final = 1
_HEADER: Final = _LIST + 2 * MOST_WRITES


class RedoLog:
    """`size` int64 counters, zero at first, changed by groups of writes of which all happen or none.

    The writes are listed, a last value says that the list is complete, then they are carried out. A process killed
    before that has changed nothing; after it, the next one to take the lock carries the list out again, which does
    no harm. Made before the fork, in anonymous memory; waiting for the lock ends in `LockTimeout` after `deadline_s`.
    """

    def __init__(self, size: int, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._map = mmap.mmap(-1, LOCK_BYTES + 8 * (_HEADER + size))
        memory = memoryview(self._map)
        self._lock = RobustMutex(memory[:LOCK_BYTES])
        self._listed = memory[LOCK_BYTES : LOCK_BYTES + 8 * _HEADER].cast("q")
        self.counters = memory[LOCK_BYTES + 8 * _HEADER :].cast("q")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one to read and commit. Not re-entrant."""
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
