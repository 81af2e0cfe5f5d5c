"""An optimizer's state in shared memory: one step by any process, seen by all.

The first step of a parameter makes its state privately, as in plain training; it is then moved into its slot and marked
present, and the optimizers of the other processes find it there. What an optimizer replaces instead of updating
in place, and Python numbers, are copied back after every step. All methods are called under the shard's lock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from training.ps.optimizers import Kept, parameters_of


@dataclass
class Slot:
    """One kept thing: its place in shared memory, and whether this process's optimizer uses it already."""

    index: int
    kept: Kept
    memory: Tensor
    bound: bool = False


class SharedState:
    """The state of one shard's optimizer. `present` (uint8 [slots], shared) is 1 where a slot has been filled."""

    def __init__(self, optimizer: Optimizer, kept: Sequence[Kept], memory: Sequence[Tensor], present: Tensor) -> None:
        self._optimizer = optimizer
        self._present = present
        by_parameter: dict[int, list[Slot]] = {}
        for index, one in enumerate(kept):
            by_parameter.setdefault(one.parameter, []).append(Slot(index, one, memory[index]))
        parameters = parameters_of(optimizer)
        self._slots = [(parameters[number], slots) for number, slots in by_parameter.items()]
        self._numbers = [(p, slot) for p, slots in self._slots for slot in slots if slot.kept.number]

    def read(self, new_slots: bool) -> None:
        """Before a step: take what other processes have made (`new_slots`) and the newest numbers."""
        if new_slots:
            for parameter, slots in self._slots:
                for slot in slots:
                    if not slot.bound and self._present[slot.index]:
                        self._bind(self._optimizer.state[parameter], slot)
        for parameter, slot in self._numbers:
            if slot.bound and slot.kept.number is not None:
                self._optimizer.state[parameter][slot.kept.name] = slot.kept.number(slot.memory.item())

    def write(self) -> bool:
        """After a step: put back what is not in shared memory; True when a slot was filled for the first time."""
        filled = False
        states = self._optimizer.state
        for parameter, slots in self._slots:
            state = states.get(parameter, {})  # not states[...], which would make one
            for slot in slots:
                value = state.get(slot.kept.name)
                if value is slot.memory or value is None:
                    continue
                self._check(slot, value)
                slot.memory.fill_(value) if slot.kept.number else slot.memory.copy_(value)
                if not slot.bound:
                    self._present[slot.index] = 1
                    self._bind(state, slot)
                    filled = True
                elif slot.kept.number is None:
                    state[slot.kept.name] = slot.memory
        return filled

    def replace(self, state_dict: dict[str, Any]) -> None:
        """Take a whole state (`torch.optim.Optimizer.state_dict` of this kind of optimizer), as after a checkpoint."""
        self._optimizer.load_state_dict(state_dict)
        self._present.zero_()
        for _, slots in self._slots:
            for slot in slots:
                slot.bound = False
        self.write()

    def _bind(self, state: dict[str, Any], slot: Slot) -> None:
        slot.bound = True
        if slot.kept.number is None:
            state[slot.kept.name] = slot.memory

    def _check(self, slot: Slot, value: object) -> None:
        fits = type(value) is slot.kept.number
        if isinstance(value, Tensor):
            fits = slot.kept.number is None and value.shape == slot.memory.shape
        if not fits:
            raise TypeError(
                f"optimizer: {type(self._optimizer).__name__} changed type or shape of its state {slot.kept.name!r} "
                "during the run, which a parameter server cannot follow. Use another optimizer, or strategy ddp."
            )


def slot_examples(kept: Sequence[Kept]) -> list[tuple[str, Tensor]]:
    """Names and examples for `layout.lay_out`."""
    return [(f"{k.parameter}.{k.name}", k.example) for k in kept]


def present_flags(kept: Sequence[Kept]) -> Tensor:
    """An example of the flags: uint8, one per slot."""
    return torch.zeros(len(kept), dtype=torch.uint8)
