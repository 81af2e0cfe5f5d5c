"""Overwritten rows, kept for workers that hold an older version.

An update copies the rows that it will change into a record, then writes them. A worker that holds an older version
reads the present rows, and then takes back every record newer than its version. A record holds what was there before
the update, whether that is complete, under way, or has only begun. No reader waits.

Pages are taken as they are written. Counters and records are written under the shard's apply lock.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from scalebook.training.engine.memory.layout import Layout

# int64 counters of one log
HEAD: Final = 0  # version made by the newest record, perhaps not published yet
TAIL: Final = 1  # the oldest version that can be read; records made by later ones are there
OPEN: Final = 2  # the version that is being made: rows may be half written; 0: none
EPOCH: Final = 3  # how often an update was taken back
USED: Final = 4  # numbers of records ever used
FREE: Final = 5  # how many of them are free
KEPT: Final = 6  # rows in all records
COUNTERS: Final = 8


class RowLog:
    """`layout` of one record: how many rows of each table (int64 [tables]), then for each table its `columns`: the row
    numbers (int64), and the old values, a tensor for each column. `records`: the most that there are.

    `memory` (uint8) begins with an entry for each version modulo `records`, the number of its record; then come the
    numbers of free records; then the records. `forgetful`: when all are used the oldest is dropped, whoever may need
    it; else that is a RuntimeError.
    """

    def __init__(
        self,
        counters: memoryview,
        memory: Tensor,
        layout: Layout,
        records: int,
        columns: Sequence[int],
        forgetful: bool = True,
    ) -> None:
        self._counters, self._layout, self._records, self._forgetful = counters, layout, records, forgetful
        table = memory[: 16 * records].view(torch.int64).numpy()
        self._record_of, self._free = table[:records], table[records:]
        self._memory, self._columns = memory[16 * records :], list(columns)
        self._parts: dict[int, list[list[Tensor]]] = {}
        self._counts: dict[int, Tensor] = {}

    @staticmethod
    def size(layout: Layout, records: int) -> int:
        """Bytes of memory; most pages are never taken."""
        return records * (16 + layout.nbytes)

    def room(self, table: int, rows: int) -> list[Tensor]:
        """Where to copy the rows of a table that are about to change: numbers, then columns. Nothing counts until
        `open`."""
        number = self._next()
        return [part[:rows] for part in self._of(number)[table]]

    def open(self, version: int, counts: Sequence[int], most_rows: int | None, needed: int) -> None:
        """Make what was copied the record of the update that makes `version`; from here on its rows may be written.

        Drops records up to version `needed`, and older ones beyond `most_rows` rows.
        """
        c, number = self._counters, self._next()
        c[OPEN] = version
        self._counts[number].numpy()[:] = counts
        self._record_of[version % self._records] = number
        c[HEAD] = version
        c[KEPT] += sum(counts)
        if c[FREE]:
            c[FREE] -= 1
        else:
            c[USED] += 1
        while c[TAIL] < min(needed, version - 1) or (
            most_rows is not None and c[KEPT] > most_rows and c[TAIL] < version - 1
        ):
            self._forget_oldest()

    def close(self) -> None:
        """The version is published."""
        self._counters[OPEN] = 0

    def torn(self, newest: int) -> int | None:
        """After a death: the version whose rows must be taken back, 0 if none; None if no process died in an update.
        `newest` is the published version."""
        c = self._counters
        if not c[OPEN]:
            return None
        return c[HEAD] if c[OPEN] > newest and c[HEAD] == c[OPEN] else 0

    def take_back(self, version: int) -> None:
        """After `torn`: repair the counters, and drop a `version` whose rows have been restored."""
        c = self._counters
        c[EPOCH] += 1
        if version:
            c[HEAD] = version - 1
        versions = self.versions()
        live = {int(self._record_of[one % self._records]) for one in versions}
        c[USED] = max(live, default=-1) + 1
        free = [number for number in range(c[USED]) if number not in live]
        self._free[: len(free)] = free
        c[FREE], c[KEPT] = len(free), sum(sum(self.counts(one)) for one in versions)
        c[OPEN] = 0

    def counts(self, version: int) -> list[int]:
        """Rows of each table in the record of an update."""
        number = int(self._record_of[version % self._records])
        self._of(number)
        counts: list[int] = self._counts[number].tolist()
        return counts

    def record(self, version: int, table: int) -> list[Tensor]:
        """Row numbers and columns of one table in the record of the update that made `version`."""
        count = self.counts(version)[table]
        return [part[:count] for part in self._of(int(self._record_of[version % self._records]))[table]]

    def versions(self) -> range:
        """The versions whose updates have a record."""
        return range(self._counters[TAIL] + 1, self._counters[HEAD] + 1)

    def start_at(self, version: int) -> None:
        """Set the first version; before the first update."""
        self._counters[HEAD] = self._counters[TAIL] = version

    def range(self, version: int) -> tuple[int, int, int]:
        """(epoch, oldest version that can be read from `version` on, version made by the newest record)."""
        c = self._counters
        head = c[HEAD]
        return c[EPOCH], max(version, c[TAIL]), head

    def unchanged_since(self, version: int) -> int | None:
        """How often an update was taken back; None if an update after `version` has begun to write. If it is the same
        before and after a read, the read saw the rows of `version`."""
        c = self._counters
        return int(c[EPOCH]) if c[HEAD] == version else None

    def is_whole(self, epoch: int, oldest: int) -> bool:
        """Whether a read since `range` is valid: nothing was taken back or dropped meanwhile."""
        return bool(self._counters[EPOCH] == epoch and self._counters[TAIL] <= oldest)

    def _next(self) -> int:
        c = self._counters
        if not c[FREE] and c[USED] >= self._records:
            if not self._forgetful:
                raise RuntimeError(
                    f"model: workers compute from versions more than {self._records} updates apart, but rows of a "
                    f"sparse table are kept for only {self._records} updates. Use fewer workers, or a clock with "
                    "smaller straggler factors."
                )
            self._forget_oldest()
        number = int(self._free[c[FREE] - 1]) if c[FREE] else c[USED]
        self._of(number)
        return number

    def _forget_oldest(self) -> None:
        c = self._counters
        oldest = c[TAIL] + 1
        number, rows = int(self._record_of[oldest % self._records]), sum(self.counts(oldest))
        c[TAIL] = oldest
        self._free[c[FREE]] = number
        c[FREE] += 1
        c[KEPT] -= rows

    def _of(self, number: int) -> list[list[Tensor]]:
        if number not in self._parts:
            size = self._layout.nbytes
            views = self._layout.views(self._memory[number * size : (number + 1) * size])
            self._counts[number] = views[0]
            parts, start = [], 1
            for columns in self._columns:
                parts.append(views[start : start + 1 + columns])
                start += 1 + columns
            self._parts[number] = parts
        return self._parts[number]
