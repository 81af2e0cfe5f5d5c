"""The sparse tables of one shard in one process: each lies once in shared memory, and updates change rows in place.

A step changes the rows of its gradient. They are gathered, with the rows of the optimizer's state, into small tensors,
on which the optimizer steps as on any other; the results are written back. Before that the shard's log
(`memory/row_log.py`) stores the old rows, for workers that hold older versions, and in case the process dies.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from scalebook.training.engine.memory.region import ShardCounters
from scalebook.training.engine.memory.row_log import RowLog
from scalebook.training.engine.store.store_layout import ShardPlan, TablePlan
from scalebook.training.engine.store.table_optimizer import compact, rows_of

LOGGED_SHARE: Final = 8
"""At most this part of a shard's tables is kept as old rows, if other processes hold versions: a worker that holds a
version for longer reads newer rows."""
LOGGED_LEAST: Final = 16 * 2**20  # bytes, however small the tables


class _Changed(NamedTuple):
    """Rows about to be written: of which table, which rows, and their new values by column."""

    table: int
    rows: Tensor
    values: list[Tensor]


class Tables:
    """`parameters`: the shard's optimizer's; those of tables are empty between two steps. `row_memory`: the run's
    memory (uint8) for rows. `forgetful`: the log may drop rows that somebody still needs."""

    def __init__(
        self,
        plan: ShardPlan,
        memory: Tensor,
        row_memory: Tensor,
        counters: ShardCounters,
        optimizer: Optimizer,
        parameters: Sequence[Parameter],
        forgetful: bool,
    ) -> None:
        self._optimizer, self._parameters, self._counters = optimizer, parameters, counters
        self.plans = plan.tables
        self.at = {table.index: number for number, table in enumerate(plan.tables)}
        """The number of a table by the index of its parameter in the shard."""
        self.columns = [_columns(table, memory) for table in plan.tables]
        """The weight and the row-wise state of each table, whole, in shared memory, each with a storage of its own."""
        size = RowLog.size(plan.log, plan.records)
        part = row_memory[plan.log_at : plan.log_at + size]
        self._log = RowLog(counters.log, part, plan.log, plan.records, [len(c) for c in self.columns], forgetful)
        bytes_, rows = sum(c.nbytes for cs in self.columns for c in cs), sum(t.rows for t in plan.tables)
        share = max(1, bytes_ // rows)
        self._most = max(LOGGED_LEAST, bytes_ // LOGGED_SHARE) // share if forgetful else None
        self._changed: list[_Changed] = []

    # --- a step: under the apply lock ----------------------------------------------------------------------------

    def lend(self, index: int, gradient: Tensor | None) -> None:
        """Give the optimizer the rows of a gradient, their state, and the gradient, as a small table."""
        number, parameter = self.at[index], self._parameters[index]
        parameter.grad = None
        if gradient is None:
            return
        rows = gradient._indices()[0]
        taken = [column.clone() for column in self._laid(number, rows)]
        parameter.data = taken[0]
        parameter.grad = compact(gradient._values())
        state = self._optimizer.state.get(parameter)
        if state:
            for entry, values in zip(self.plans[number].state, taken[1:], strict=True):
                state[entry.name] = values
        self._changed.append(_Changed(number, rows, taken))

    def collect(self) -> None:
        """After the optimizer's step: take the new rows, and empty its parameters and state again."""
        for index, (number, rows, taken) in enumerate(self._changed):
            parameter, plan = self._parameters[self.plans[number].index], self.plans[number]
            state = self._optimizer.state.get(parameter, {})
            after = [parameter.data]
            for entry, before in zip(plan.state, taken[1:], strict=True):
                after.append(state.get(entry.name, before))
                if entry.name in state:
                    state[entry.name] = after[-1][:0]
            self._changed[index] = _Changed(number, rows, after)
            parameter.grad, parameter.data = None, parameter.data[:0]

    def subtract(self, index: int, gradient: Tensor | None, rate: float) -> None:
        """What torch.optim.SGD does, instead of `lend`, its step, and `collect`."""
        if gradient is None:
            return
        number, rows = self.at[index], gradient._indices()[0]
        (weight,) = self._laid(number, rows)
        self._changed.append(_Changed(number, rows, [torch.add(weight, gradient._values(), alpha=-rate)]))

    def write(self, version: int) -> None:
        """Write the rows: this update makes `version`. The caller publishes it, then calls `close`."""
        counts = [0] * len(self.plans)
        for changed in self._changed:
            counts[changed.table] = len(changed.rows)
        bases = [base for base in self._counters.bases.tolist() if base >= 0]
        self._log.open(version, counts, self._most, min(bases, default=version))
        for number, rows, after in self._changed:
            for column, values in zip(self.columns[number], after, strict=True):
                column.index_copy_(0, rows, values)
        self._changed = []

    def close(self) -> None:
        """The version is published."""
        self._log.close()

    def recover(self, newest: int) -> None:
        """Take back an update in which a process has died, if there is one. `newest` is the published version."""
        torn = self._log.torn(newest)
        self._changed = []
        if torn is None:
            return
        if torn:
            for number, columns in enumerate(self.columns):
                rows, *before = self._log.record(torn, number)
                for column, values in zip(columns, before, strict=True):
                    column.index_copy_(0, rows, values)
        self._log.take_back(torn)

    def _laid(self, number: int, rows: Tensor) -> list[Tensor]:
        """Copies of rows, by column, in the log."""
        numbers, *before = self._log.room(number, len(rows))
        numbers.copy_(rows)
        for column, logged in zip(self.columns[number], before, strict=True):
            torch.index_select(column, 0, rows, out=logged)
        return before

    # --- reading -------------------------------------------------------------------------------------------------

    def read(self, number: int, rows: Tensor, version: int) -> Tensor:
        """Rows (int64 [n], different, increasing) of a table's weight as of a pinned version: [n, ...]. Needs no lock.

        Newer rows if the log has dropped what came after that version.
        """
        weight = self.columns[number][0]
        while True:
            epoch, oldest, _ = self._log.range(version)
            values = weight.index_select(0, rows)
            newest = self._log.range(version)[2]
            if newest > oldest and len(rows):
                self._undo(number, rows, values, oldest, newest)
            if self._log.is_whole(epoch, oldest):
                return values

    def unchanged_since(self, version: int) -> int | None:
        """A number that stays the same as long as the tables are those of `version`; None if they are not."""
        return self._log.unchanged_since(version)

    def _undo(self, number: int, rows: Tensor, values: Tensor, oldest: int, newest: int) -> None:
        """Take back what the updates after `oldest` up to `newest` have done to the rows."""
        records = [self._log.record(version, number) for version in range(oldest + 1, newest + 1)]
        numbers = torch.cat([record[0] for record in records])
        places = torch.searchsorted(rows, numbers).clamp_(max=len(rows) - 1)
        hits = (rows[places] == numbers).nonzero()[:, 0]
        if not len(hits):
            return
        first = torch.full((len(rows),), len(numbers)).scatter_reduce_(0, places[hits], hits, "amin")
        changed = (first < len(numbers)).nonzero()[:, 0]
        values[changed] = torch.cat([record[1] for record in records])[first[changed]]

    def since(self, version: int, number: int) -> Tensor:
        """The rows of a table that updates after `version` have changed, as far as the log knows."""
        _, oldest, newest = self._log.range(version)
        changed = [self._log.record(later, number)[0] for later in range(oldest + 1, newest + 1)]
        return torch.unique(torch.cat(changed)) if changed else torch.empty(0, dtype=torch.int64)

    def moved(self, version: int) -> float:
        """||w - w_base||, Euclidean, over the tables; under the apply lock."""
        norms = [torch.zeros(())]
        for number, columns in enumerate(self.columns):
            rows = self.since(version, number)
            norms.append((columns[0][rows].float() - self.read(number, rows, version).float()).norm())
        return float(torch.stack(norms).norm())

    # --- whole tables --------------------------------------------------------------------------------------------

    def weight(self, index: int) -> Tensor:
        """The whole table of a parameter, in shared memory."""
        return self.columns[self.at[index]][0]

    def initialise(self, given: Mapping[int, Tensor], state: Mapping[int, Mapping[str, Any]]) -> None:
        """Before the first update: set whole tables, and the row-wise state that an optimizer has for them, both by the
        index of the parameter."""
        for index, weight in given.items():
            self.weight(index).copy_(weight)
        self.load_state(state)
        self._log.start_at(0)

    def load_state(self, state: Mapping[int, Mapping[str, Any]]) -> None:
        """Set the row-wise state by the index of the parameter; zeros if there is none."""
        for table, columns in zip(self.plans, self.columns, strict=True):
            of_table = state.get(table.index, {})
            for entry, column in zip(table.state, columns[1:], strict=True):
                given = of_table.get(entry.name)
                if given is None:
                    column.zero_()
                elif given.data_ptr() != column.data_ptr():
                    column.copy_(given)

    def start_at(self, version: int) -> None:
        """Set the first version."""
        self._log.start_at(version)

    def state(self, index: int) -> dict[str, Tensor]:
        """The row-wise state of a parameter, whole, in shared memory."""
        number = self.at[index]
        names = [entry.name for entry in self.plans[number].state]
        return dict(zip(names, self.columns[number][1:], strict=True))

    def without_rows(self, index: int, state: Mapping[str, Any]) -> dict[str, Any]:
        """A parameter's state with row-wise entries cut to no rows."""
        names = {entry.name for entry in self.plans[self.at[index]].state}
        return {name: value[:0].clone() if name in names else value for name, value in state.items()}


def rows_compensated(tables: Tables, index: int, gradient: Tensor, version: int) -> tuple[Tensor, Tensor]:
    """The rows of a gradient now, and as of `version`, which it was computed from."""
    rows, number = gradient._indices()[0], tables.at[index]
    return tables.columns[number][0][rows], tables.read(number, rows, version)


def with_values(gradient: Tensor, values: Tensor) -> Tensor:
    """A sparse gradient of the same rows."""
    return rows_of(gradient._indices()[0], values, len(gradient))


def _columns(table: TablePlan, memory: Tensor) -> list[Tensor]:
    views = table.columns.views(memory[table.at :])
    return [_own_storage(view) for view in views]


def _own_storage(view: Tensor) -> Tensor:
    """The same memory as a tensor with a storage of its own, so that `torch.save` writes no more."""
    if not view.numel():
        return view
    flat = view.view(-1).view(torch.uint8).numpy().data
    return torch.frombuffer(flat, dtype=view.dtype).view(view.shape)
