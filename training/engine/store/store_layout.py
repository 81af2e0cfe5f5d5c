"""Where everything of one optimizer lies in shared memory; the same in every process that has the same model."""

import hashlib
import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.optim import Optimizer

from scalebook.training.engine.hyper import encode
from scalebook.training.engine.memory.layout import ALIGNMENT, Layout, lay_out, split_into_shards
from scalebook.training.engine.memory.row_log import RowLog
from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.rules.table_conflicts import refuse_beside_tables
from scalebook.training.engine.store.group_changes import NotedParts
from scalebook.training.engine.store.rebuilt_optimizer import cut_error, groups_of, is_written, parameters_of
from scalebook.training.engine.store.state_discovery import (
    FoundState,
    StateEntry,
    discover,
    refuse_coupling,
    refuse_own_rate,
)
from scalebook.training.engine.store.table_optimizer import is_table, refuse_optimizer

ROOM: Final = 1024  # bytes by which hyper-parameters may grow, as numbers get more digits
MOST_RECORDS: Final = 16384  # updates that a log can go back
NOTHING: Final = Layout((), 0)
NOTED: Final = NotedParts()
ADDRESSES: Final = 2**40  # bytes of address space that a log may have; it takes what it writes


@dataclass(frozen=True)
class TablePlan:
    """A sparse table: its parameter's place in the optimizer and `index` in the shard, and its rows.

    `columns`: the weight, then each entry of `state`, of the same shape; from byte `at` of the run's memory.
    """

    place: int
    index: int
    rows: int
    state: tuple[StateEntry, ...]
    columns: Layout
    at: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the weight."""
        return self.columns.fields[0].nbytes // max(self.rows, 1)


@dataclass(frozen=True)
class ShardPlan:
    """One shard: its parameters and groups of the optimizer, the layout of one version, and of its state.

    `reaches`: as in `FoundState`.

    After the parameters a version has `notes`: what is `noted` of its optimizer. `forms`: of state that is neither a
    tensor nor a number, by parameter and name. The state has the optimizer's slots, then a flag for each slot, then
    what delay compensation keeps. The versions begin at byte `versions_at`, the two states at `state_at`. With error
    feedback each of the `keepers`, which are the workers, keeps `kept` numbers (fp32) twice: the last residual, and
    that of the push under way.

    `tables` have no rows in versions and state: they come after all that, once. `log` is the layout of one record of
    their rows; `records` of these lie from byte `log_at` of the memory for rows on.
    """

    parameters: tuple[int, ...]
    groups: tuple[int, ...]
    version: Layout
    slots: Layout
    flags: Layout
    squares: Layout
    state_entries: tuple[StateEntry, ...]
    versions_at: int
    buffers: int
    kept: int = 0
    keepers: int = 0
    tables: tuple[TablePlan, ...] = ()
    log: Layout = NOTHING
    log_at: int = 0
    records: int = 0
    notes: Layout = NOTHING
    noted: NotedParts = NOTED
    forms: tuple[tuple[int, str, Any], ...] = ()
    reaches: bool = False

    @property
    def version_bytes(self) -> int:
        """Bytes of one version, notes included."""
        return max(self.version.nbytes, self.notes.nbytes)

    @property
    def state_bytes(self) -> int:
        """Bytes of one of the two states; 0 if nothing is kept."""
        return self.squares.nbytes

    @property
    def state_at(self) -> int:
        return self.versions_at + self.buffers * self.version_bytes

    @property
    def kept_at(self) -> int:
        return -(-(self.state_at + 2 * self.state_bytes) // ALIGNMENT) * ALIGNMENT

    @property
    def tables_at(self) -> int:
        return self.kept_at + 2 * self.keepers * self._kept_bytes

    @property
    def end(self) -> int:
        return self.tables[-1].at + self.tables[-1].columns.nbytes if self.tables else self.tables_at

    @property
    def _kept_bytes(self) -> int:
        return -(-4 * self.kept // ALIGNMENT) * ALIGNMENT

    def version_at(self, buffer: int) -> int:
        """The byte where the version in `buffer` begins."""
        return self.versions_at + buffer * self.version_bytes

    def version_memory(self, memory: Tensor, buffer: int) -> Tensor:
        """The bytes of the version in `buffer`, a view into `memory` (uint8)."""
        return memory[self.version_at(buffer) : self.version_at(buffer + 1)]

    def state_memory(self, memory: Tensor, which: int) -> Tensor:
        """The bytes of state 0 or 1, a view into `memory` (uint8)."""
        start = self.state_at + which * self.state_bytes
        return memory[start : start + self.state_bytes]

    def kept_memory(self, memory: Tensor, worker: int, which: int) -> Tensor:
        """A worker's residual, fp32 [kept]: 0 or 1 of the two."""
        start = self.kept_at + (2 * worker + which) * self._kept_bytes
        return memory[start : start + 4 * self.kept].view(torch.float32)


@dataclass(frozen=True)
class PartitionPlan:
    """One optimizer: its shards, and the slots for gradients that are gathered or wait for a server.

    `gradients` is the layout of one slot's gradients, all shards, in the order of the optimizer's parameters. After
    them come a flag for each (uint8, 1: present), and the hyper-parameters: their length (int64) and JSON.

    Gradients of tables are elsewhere: `rows` is the layout of those of one slot, in the memory for rows: how many rows
    of each table, then for each table their numbers and values, with room for all of its rows.
    """

    shards: tuple[ShardPlan, ...]
    gradients: Layout
    flags: Layout
    settings: Layout
    slots: int
    slots_at: int
    rows: Layout = NOTHING
    rows_at: int = 0

    @property
    def end(self) -> int:
        return self.slots_at + self.slots * self.settings.nbytes

    @property
    def tables(self) -> list[TablePlan]:
        """The tables of all shards."""
        return [table for shard in self.shards for table in shard.tables]

    @property
    def rows_end(self) -> int:
        """The end of the memory for rows."""
        return self.rows_at + self.slots * self.rows.nbytes

    def slot_memory(self, memory: Tensor, slot: int) -> Tensor:
        """The bytes of one slot, a view into `memory` (uint8)."""
        size = self.settings.nbytes
        return memory[self.slots_at + slot * size : self.slots_at + (slot + 1) * size]


class Capacity:
    """How much memory is planned: here, for memory shared by worker processes."""

    def buffers(self, settings: Settings, workers: int) -> int:
        """Versions of a shard."""
        return settings.buffers(workers)

    def slots(self, settings: Settings, workers: int, has_tables: bool) -> int:
        """Gradients at a time. `has_tables`: some are sparse."""
        return settings.slots(workers)


OF_PROCESSES: Final = Capacity()


def plan_partition(
    optimizer: Optimizer,
    settings: Settings,
    workers: int,
    start: int = 0,
    rows_start: int = 0,
    capacity: Capacity = OF_PROCESSES,
    others: Sequence[Tensor] = (),
) -> PartitionPlan:
    """Plan the memory of one optimizer from byte `start`, and from `rows_start` in the memory for rows. `others`:
    parameters of other optimizers. Refuses optimizers as `discover` and `refuse_coupling` do."""
    refuse_optimizer(optimizer)
    discovered = discover(optimizer, others)
    entries = discovered.entries
    if settings.damping.scales:
        refuse_own_rate(optimizer, discovered)
    parameters = [(str(place), p.detach()) for place, p in enumerate(parameters_of(optimizer))]
    tables = {place for place, p in enumerate(parameters_of(optimizer)) if is_table(p)}
    if tables:
        refuse_beside_tables(settings)
    if settings.shards > len(parameters):
        raise ArgumentError(
            "out-of-bounds",
            "shards",
            f"is {settings.shards}, but {type(optimizer).__name__} has only {len(parameters)} parameters",
            f"Use at most {len(parameters)}.",
        )
    settings.push_codec.check([tuple(p.shape) for _, p in parameters], settings.push_codec.ARGUMENT)
    if settings.shards > 1 and not settings.local.steps and (discovered.reaches or is_written(optimizer)):
        raise cut_error(optimizer)
    cuts = [tuple(int(name) for name, _ in run) for run in split_into_shards(parameters, settings.shards)]
    refuse_coupling(optimizer, cuts)
    whole = dict(enumerate(p for _, p in parameters))
    parameters = [(name, p[:0] if int(name) in tables else p) for name, p in parameters]
    shards = []
    for places in cuts:
        buffers = capacity.buffers(settings, workers)
        shard = _plan_shard(optimizer, [parameters[i] for i in places], discovered, settings, workers, start, buffers)
        shard = _with_tables(shard, {i: whole[i] for i in places if i in tables}, entries, rows_start)
        shards.append(shard)
        start, rows_start = shard.end, shard.log_at + RowLog.size(shard.log, shard.records)
    slots = capacity.slots(settings, workers, has_tables=bool(tables))
    gradients = lay_out(parameters)
    flags = lay_out([("present", torch.zeros(len(parameters), dtype=torch.uint8))], start=gradients.nbytes)
    length = 8 + 2 * len(encode(optimizer.param_groups)) + ROOM if slots else 8
    hyper = lay_out([("settings", torch.zeros(length, dtype=torch.uint8))], start=flags.nbytes)
    planned = [table for shard in shards for table in shard.tables]
    rows = _record([(table, 1) for table in planned]) if planned else NOTHING
    return PartitionPlan(tuple(shards), gradients, flags, hyper, slots, start, rows, rows_start)


def _with_tables(
    plan: ShardPlan, tables: dict[int, Tensor], entries: Sequence[StateEntry], rows_start: int
) -> ShardPlan:
    """The plan with these tables, by place in the optimizer."""
    planned: list[TablePlan] = []
    offset = plan.tables_at
    for place, weight in tables.items():
        state = tuple(e for e in entries if e.parameter == place and _has_rows(e))
        empty = torch.empty(weight.shape, dtype=weight.dtype, device="meta")
        of_state = [(e.name, torch.empty(weight.shape, dtype=e.example.dtype, device="meta")) for e in state]
        columns = lay_out([("weight", empty), *of_state])
        offset = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        planned.append(TablePlan(place, plan.parameters.index(place), len(weight), state, columns, offset))
        offset += columns.nbytes
    if not planned:
        return replace(plan, log_at=rows_start)
    log = _record([(table, 1 + len(table.state)) for table in planned])
    records = max(64, min(MOST_RECORDS, ADDRESSES // log.nbytes))
    return replace(plan, tables=tuple(planned), log=log, log_at=rows_start, records=records)


def _record(tables: Sequence[tuple[TablePlan, int]]) -> Layout:
    """The layout of a record with room for all rows of each table: their numbers, and that many of its columns."""
    fields = [("counts", torch.empty(len(tables), dtype=torch.int64, device="meta"))]
    for table, columns in tables:
        fields.append(("rows", torch.empty(table.rows, dtype=torch.int64, device="meta")))
        fields += [
            (column.name, torch.empty(column.shape, dtype=column.dtype, device="meta"))
            for column in table.columns.fields[:columns]
        ]
    layout = lay_out(fields)
    return Layout(layout.fields, -(-layout.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)


def _has_rows(entry: StateEntry) -> bool:
    """Whether an entry of a table's state has a row for each of the table's rows."""
    return entry.number is None and entry.example.dim() > 1


def _plan_shard(
    optimizer: Optimizer,
    parameters: Sequence[tuple[str, Tensor]],
    discovered: FoundState,
    settings: Settings,
    workers: int,
    start: int,
    buffers: int,
) -> ShardPlan:
    places = tuple(int(name) for name, _ in parameters)
    tables = {place for place, p in enumerate(parameters_of(optimizer)) if is_table(p)}
    entries = tuple(
        replace(k, parameter=places.index(k.parameter), example=_without_rows(k, k.parameter in tables))
        for k in discovered.entries
        if k.parameter in places
    )
    names = list(dict.fromkeys(k.name for k in entries))  # one array of all parameters behind the other
    entries = tuple(sorted(entries, key=lambda k: names.index(k.name)))
    adaptive = settings.keeps_squares
    slots = lay_out([(_called(k), k.example) for k in entries])
    flags = lay_out([("present", torch.zeros(len(entries), dtype=torch.uint8))] if entries else [], start=slots.nbytes)
    squares = lay_out([(name, p) for name, p in parameters] if adaptive else [], start=flags.nbytes)
    start = -(-start // ALIGNMENT) * ALIGNMENT
    groups = tuple(groups_of(optimizer, places))
    residual = settings.push_codec.kept([tuple(p.shape) for _, p in parameters])
    version = lay_out(list(parameters))
    room = [("notes", torch.zeros(discovered.noted.room, dtype=torch.uint8))] if discovered.noted.room else []
    forms = tuple(
        (places.index(index), name, form) for (index, name), form in discovered.forms.items() if index in places
    )
    return ShardPlan(
        places, groups, version, slots, flags, squares, entries, start, buffers, residual, workers if residual else 0,
        notes=lay_out(room, start=version.nbytes), noted=discovered.noted, forms=forms,
        reaches=discovered.reaches,
    )  # fmt: skip


def _called(entry: StateEntry) -> str:
    name = f"{entry.parameter}.{entry.name}"
    return name if entry.hole is None else f"{name}.{entry.hole}"


def _without_rows(entry: StateEntry, of_table: bool) -> Tensor:
    """The example of a state entry in the plan of a version: empty for row-wise state of a table, which lies
    elsewhere."""
    return entry.example[:0] if of_table and _has_rows(entry) else entry.example


def digest(plans: Sequence[PartitionPlan], settings: Settings) -> int:
    """A number (int64) that almost surely differs between different plans."""
    layouts = [
        [
            (s.version, s.slots, s.parameters, [replace(t, at=0) for t in s.tables], s.notes, sorted(s.noted.keys))
            for s in plan.shards
        ]
        for plan in plans
    ]
    text = repr((layouts, settings)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
