"""An optimizer's state in shared memory, twice: the state of the newest version, and that of the one being made.

The first step of a parameter makes its state privately, as in plain training; it is then moved into its slot and marked
present, and the optimizers of the other processes find it there. What an optimizer replaces instead of updating
in place, and Python numbers, are copied back after every step. All methods are called by who is `Shard.applying`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from scalebook.training.ps.applying.plan import ShardPlan
from scalebook.training.ps.optimizer.finding import StateEntry
from scalebook.training.ps.optimizer.forms import cut_out, filled
from scalebook.training.ps.optimizer.rebuilding import parameters_of


@dataclass
class Slot:
    """One entry of optimizer state: where it lies in both copies, and whether this process's optimizer has it yet."""

    index: int
    entry: StateEntry
    memory: tuple[Tensor, Tensor]
    bound: bool = False


@dataclass
class Formed:
    """A value of a parameter's state that is neither a tensor nor a number: its form, and the slots of its tensors."""

    parameter: Parameter
    name: str
    form: Any
    slots: list[Slot]


class SharedState:
    """The state of one shard's optimizer. `squares[i]`: what delay compensation keeps, by parameter, in state i."""

    def __init__(self, optimizer: Optimizer, plan: ShardPlan, memory: Tensor) -> None:
        self._optimizer = optimizer
        self._bytes = [plan.state_memory(memory, i) for i in (0, 1)]
        views = [plan.slots.views(part) for part in self._bytes]
        self._present = [plan.flags.views(part)[0] if plan.state_entries else None for part in self._bytes]
        self.squares = [plan.squares.views(part) for part in self._bytes]
        self.is_empty = not plan.state_bytes
        self.by_place: dict[int, list[Slot]] = {}
        """By place of the parameter in the shard."""
        holes: dict[tuple[int, str], list[Slot]] = {}
        for index, entry in enumerate(plan.state_entries):
            slot = Slot(index, entry, (views[0][index], views[1][index]))
            if entry.hole is None:
                self.by_place.setdefault(entry.parameter, []).append(slot)
            else:
                holes.setdefault((entry.parameter, entry.name), []).append(slot)
        parameters = parameters_of(optimizer)
        self._formed = [Formed(parameters[at], name, form, holes.get((at, name), [])) for at, name, form in plan.forms]
        self._slots = [(parameters[number], slots) for number, slots in self.by_place.items()]

    def memory(self, which: int) -> Tensor:
        """All bytes of state 0 or 1 (uint8)."""
        return self._bytes[which]

    def begin(self, newest: int, has_copy: bool = True) -> int:
        """Before a step: copy the newest state, and give the copy to the optimizer; returns which of the two it is. Not
        `has_copy`: of the copy nothing is there yet but what the optimizer has state of."""
        if self.is_empty:
            return 0
        other = 1 - newest
        flags, had = self._present[other], self._present[newest]
        if has_copy:
            self._bytes[other].copy_(self._bytes[newest])
        elif flags is not None and had is not None:
            flags.copy_(had)
        self.read(other)
        return other

    def present(self, which: int) -> list[bool]:
        """Of each entry, whether state `which` has it."""
        flags = self._present[which]
        return [] if flags is None else flags.tolist()

    def read(self, which: int) -> None:
        """Let the optimizer of this process use copy `which` (0 or 1) of the state."""
        present = self._present[which]
        if present is None:
            return
        for parameter, slots in self._slots:
            state = self._optimizer.state.get(parameter)  # not state[...], which would make one
            for slot in slots:
                if not slot.bound:
                    if not present[slot.index]:
                        continue
                    slot.bound = True
                    state = self._optimizer.state[parameter]
                assert state is not None
                memory, number = slot.memory[which], slot.entry.number
                state[slot.entry.name] = memory if number is None else number(memory.item())
        for formed in self._formed:
            self._read_formed(formed, which, present)

    def _read_formed(self, formed: Formed, which: int, present: Tensor) -> None:
        """A constant comes with the rest of its parameter's state."""
        if formed.slots and present[formed.slots[0].index]:
            self._optimizer.state[formed.parameter][formed.name] = filled(
                formed.form, [slot.memory[which] for slot in formed.slots]
            )
        elif not formed.slots and (state := self._optimizer.state.get(formed.parameter)):
            state.setdefault(formed.name, filled(formed.form, []))

    def write(self, which: int) -> None:
        """After a step: put into state `which` what the optimizer has not changed there itself."""
        present, states = self._present[which], self._optimizer.state
        if present is None:
            return
        for parameter, slots in self._slots:
            state = states.get(parameter, {})  # not states[...], which would make one
            for slot in slots:
                value, memory = state.get(slot.entry.name), slot.memory[which]
                if value is memory or value is None:
                    continue
                self._check(slot, value)
                memory.fill_(value) if slot.entry.number else memory.copy_(value)
                present[slot.index] = 1
                slot.bound = True
                if slot.entry.number is None:
                    state[slot.entry.name] = memory
        for formed in self._formed:
            self._write_formed(formed, which, present)

    def _write_formed(self, formed: Formed, which: int, present: Tensor) -> None:
        state = self._optimizer.state.get(formed.parameter, {})
        if (value := state.get(formed.name)) is None and formed.slots:
            return
        try:
            form, tensors = cut_out(value)
        except TypeError as error:
            raise self._changed(formed.name) from error
        if form != formed.form and formed.name in state:
            raise self._changed(formed.name)
        for slot, tensor in zip(formed.slots, tensors, strict=True):
            if tensor is not (memory := slot.memory[which]):
                self._check(slot, tensor)
                memory.copy_(tensor)
                present[slot.index] = 1
        if formed.slots:
            state[formed.name] = filled(form, [slot.memory[which] for slot in formed.slots])

    def replace(self, state: Mapping[int, Any]) -> None:
        """Take the whole state by place of parameter (`state` of a state dict), as after a checkpoint; into state 0."""
        for part in self._bytes:
            part.zero_()
        for _, slots in self._slots:
            for slot in slots:
                slot.bound = False
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": dict(state)})
        for formed in self._formed:
            loaded = self._optimizer.state.get(formed.parameter, {})
            if formed.name in loaded:  # torch makes other texts of texts there
                loaded[formed.name] = filled(formed.form, cut_out(loaded[formed.name])[1])
        self.write(0)

    def _check(self, slot: Slot, value: object) -> None:
        fits = type(value) is slot.entry.number
        if isinstance(value, Tensor):
            fits = slot.entry.number is None and value.shape == slot.memory[0].shape
        if not fits:
            raise self._changed(slot.entry.name)

    def _changed(self, name: str) -> TypeError:
        return TypeError(
            f"optimizer: {type(self._optimizer).__name__} changed the type or shape of its state {name!r} during the "
            "run, which a parameter server cannot follow. Use another optimizer, or strategy ddp."
        )
