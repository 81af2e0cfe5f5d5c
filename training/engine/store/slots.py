"""Gradients in shared memory: those that a rule gathers, and those that wait for a server."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scalebook.training.engine.hyper import Encoder, Groups, decode
from scalebook.training.engine.memory.region import Control
from scalebook.training.engine.store.store_layout import PartitionPlan
from scalebook.training.engine.store.table_optimizer import rows_of
from scalebook.training.engine.trace import Origin


class FilledSlot(NamedTuple):
    """One slot's gradients, in the order of the optimizer's parameters, and what they travel with."""

    gradients: list[Tensor | None]
    groups: Groups
    valid: bool


class Average(NamedTuple):
    """The gradients of a round, averaged, in the order of the optimizer's parameters, and what they travel with."""

    gradients: list[Tensor | None]
    groups: Groups


class Slots:
    """The slots of one optimizer. One worker writes a slot; others read it when it is registered or pushed."""

    def __init__(
        self, plan: PartitionPlan, memory: Tensor, control: Control, number: int, row_memory: Tensor | None = None
    ) -> None:
        self._counters, self._shards = control.partition_counters[number], len(plan.shards)
        self._parts = parts = [plan.slot_memory(memory, slot) for slot in range(plan.slots)]
        self._gradients = [plan.gradients.views(part) for part in parts]
        self._flags = [plan.flags.views(part)[0] for part in parts]
        self._settings = [plan.settings.views(part)[0] for part in parts]
        self._tables, self._rows = (
            plan.tables,
            [plan.rows.views(_part(row_memory, plan, slot)) for slot in range(plan.slots) if row_memory is not None],
        )
        self._table_at = {table.place: number for number, table in enumerate(plan.tables)}
        self._encode = Encoder()
        self._decoded: tuple[bytes, Groups] = (b"", [])

    def memory(self, slot: int) -> Tensor:
        """All bytes of a slot (uint8)."""
        return self._parts[slot]

    @torch.no_grad()
    def write(
        self,
        slot: int,
        origins: list[Origin],
        gradients: list[Tensor | None],
        groups: Groups,
        valid: bool,
        is_carried: bool = False,
    ) -> None:
        """Fill a slot. `origins`: one for each shard, of the same push. `is_carried`: a `Carrier` writes the
        gradients."""
        self._note(slot, origins, valid)
        if not is_carried:
            self._put(slot, gradients)
        self._flags[slot].copy_(torch.tensor([g is not None for g in gradients]))
        self._write_groups(slot, groups)

    def _note(self, slot: int, origins: list[Origin], valid: bool) -> None:
        counters, lead = self._counters, origins[0]
        counters.owner[slot], counters.seq[slot], counters.valid[slot] = lead.worker, lead.seq, int(valid)
        for shard, origin in enumerate(origins):
            counters.base[slot * self._shards + shard] = origin.base_version
            counters.buffer[slot * self._shards + shard] = origin.base_buffer
        counters.pulled[slot] = lead.pulled

    def _put(self, slot: int, gradients: list[Tensor | None]) -> None:
        for place, (view, gradient) in enumerate(zip(self._gradients[slot], gradients, strict=True)):
            if gradient is not None and place in self._table_at:
                self._write_rows(slot, self._table_at[place], gradient)
            elif gradient is not None:
                view.copy_(gradient)

    def _write_rows(self, slot: int, table: int, gradient: Tensor) -> None:
        counts, numbers, values = self._rows[slot][0], *self._rows[slot][1 + 2 * table : 3 + 2 * table]
        count = len(gradient._values())
        numbers[:count].copy_(gradient._indices()[0])
        values[:count].copy_(gradient._values())
        counts[table] = count

    def _read_rows(self, slot: int, table: int) -> Tensor:
        counts, numbers, values = self._rows[slot][0], *self._rows[slot][1 + 2 * table : 3 + 2 * table]
        count = int(counts[table])
        return rows_of(numbers[:count], values[:count], self._tables[table].rows)

    def _write_groups(self, slot: int, groups: Groups) -> None:
        text, room = self._encode(groups), self._settings[slot]
        if len(text) + 8 > room.numel():
            raise ValueError("optimizer: its settings have grown during training beyond what fits into a push.")
        packed = len(text).to_bytes(8, "little") + text
        room[: len(packed)] = torch.frombuffer(bytearray(packed), dtype=torch.uint8)

    def gather(self, slot: int, first: bool) -> None:
        """The slot has joined the round, as its `first` or later; it stays unchanged until the next round."""

    def average(self, slots: Sequence[int], places: Sequence[int], is_sum: bool = False) -> Average:
        """The mean of the valid gradients in `slots`, summed in this order, with the hyper-parameters of the last; a
        gradient that a slot lacks counts as 0. `is_sum`: the sum instead.

        One entry for each parameter of the optimizer; None at places other than `places`, and where no slot has a
        gradient.
        """
        filled = [self.read(slot) for slot in slots]
        valid = [slot for slot in filled if slot.valid]
        gradients: list[Tensor | None] = [None] * len(filled[0].gradients)
        for place in places:
            present = [g for slot in valid if (g := slot.gradients[place]) is not None]
            gradients[place] = mean(present, 1 if is_sum else len(valid))
        return Average(gradients, filled[-1].groups)

    def read(self, slot: int) -> FilledSlot:
        """The gradients in a slot, as views into shared memory, in each parameter's shape and type."""
        present = self._flags[slot].tolist()
        gradients = [g if here else None for g, here in zip(self._gradients[slot], present, strict=True)]
        for place, table in self._table_at.items():
            gradients[place] = self._read_rows(slot, table) if present[place] else None
        return FilledSlot(gradients, self._groups(slot), bool(self._counters.valid[slot]))

    def origin(self, slot: int, shard: int) -> Origin:
        """The origin of a slot's gradient at one shard."""
        counters, index = self._counters, slot * self._shards + shard
        return Origin(
            counters.owner[slot],
            counters.seq[slot],
            counters.base[index],
            counters.buffer[index],
            counters.pulled[slot],
        )

    def _groups(self, slot: int) -> Groups:
        room = self._settings[slot]
        length = int.from_bytes(bytes(room[:8].tolist()), "little")
        text = room[8 : 8 + length].numpy().tobytes()
        if text != self._decoded[0]:
            self._decoded = (text, decode(text))
        return self._decoded[1]


def mean(present: Sequence[Tensor], count: int) -> Tensor | None:
    """The sum of `present`, in this order, divided by `count`; a new tensor of their shape, None if there are none."""
    if not present:
        return None
    total = present[0] + present[1] if len(present) > 1 else present[0].clone()
    for gradient in present[2:]:
        total += gradient
    total = total.div_(count) if count > 1 else total
    return total.coalesce() if total.is_sparse else total


def _part(row_memory: Tensor, plan: PartitionPlan, slot: int) -> Tensor:
    return row_memory[plan.rows_at + slot * plan.rows.nbytes :]
