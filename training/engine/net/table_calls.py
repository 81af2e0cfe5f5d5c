"""Calls about rows of sparse tables, and memory for the rows that a remote worker pushes.

Read `gradient_calls.py` first.
"""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from scalebook.training.engine.net.call_protocol import CallSpec, Reply, Room, count
from scalebook.training.engine.net.raw_tensors import bytes_of
from scalebook.training.engine.net.wire import ProtocolError
from scalebook.training.engine.store.store_layout import TablePlan
from scalebook.training.engine.store.table_optimizer import rows_of
from scalebook.training.engine.worker.client import Client

AT_ONCE: Final = 4 << 20
"""Most bytes of rows in one reply, unless one row is larger."""
MOST_ROWS: Final = 65_536
"""Most rows in one reply."""


def rows_at_once(table: TablePlan) -> int:
    """Most rows of a table in one reply."""
    return max(1, min(MOST_ROWS, AT_ONCE // max(1, table.row_bytes)))


class RowRoom:
    """Memory for one table's gradient: as many rows as the table has. The system provides pages as they are written."""

    def __init__(self, table: TablePlan) -> None:
        weight = table.columns.fields[0]
        self._rows = table.rows
        self._numbers = torch.empty(table.rows, dtype=torch.int64)
        self._values = torch.empty(weight.shape, dtype=weight.dtype)

    def room(self, present: int) -> list[memoryview]:
        """`present`: 0 for no gradient, else 1 plus its number of rows."""
        rows = count(present, self._rows + 2) - 1
        return [bytes_of(self._numbers[:rows]), bytes_of(self._values[:rows])] if present else []

    def gradient(self, present: int) -> Tensor | None:
        """The gradient that has arrived. ProtocolError unless its rows are in the table, different and increasing."""
        if not present:
            return None
        numbers = self._numbers[: present - 1]
        _check(numbers, self._rows)
        return rows_of(numbers, self._values[: present - 1], self._rows)


class TableCalls:
    """Carried out by the worker's client beside the shards; `client` finds it by the number of its optimizer."""

    def __init__(self, client: Callable[[int], Client]) -> None:
        self._client = client
        self._numbers = torch.empty(MOST_ROWS, dtype=torch.int64)

    def offers(self) -> dict[str, CallSpec]:
        """The calls by name."""
        return {"rows": CallSpec((int, int, int), self._rows, self._room)}

    def _table(self, number: int, place: int) -> TablePlan:
        for table in self._client(number).host.partition.plan.tables:
            if table.place == place:
                return table
        raise ProtocolError("channel: no such table")

    def _room(self, number: int, place: int, rows: int) -> Room:
        return [bytes_of(self._numbers[: count(rows, rows_at_once(self._table(number, place)) + 1)])]

    def _rows(self, number: int, place: int, rows: int) -> Reply:
        """Rows as of the versions pinned for the worker when it was sent the newest."""
        numbers = self._numbers[:rows]
        _check(numbers, self._table(number, place).rows)
        values = self._client(number).reads.rows(place, numbers).contiguous()
        return Reply(None, [bytes_of(values)])


def _check(numbers: Tensor, rows: int) -> None:
    is_within = not len(numbers) or (int(numbers[0]) >= 0 and int(numbers[-1]) < rows)
    if not is_within or not bool((numbers.diff() > 0).all()):
        raise ProtocolError("channel: expected distinct rows of the table in increasing order")
