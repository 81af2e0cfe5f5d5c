"""One shard: parameters, the optimizer's state and the version, in shared memory; applies updates.

Every process has its own Shard object over the same memory, with an optimizer object of its own. Not synchronised: the
host calls it under the shard's lock (`hosts/inline.py`).
"""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from training.ps.layout import Layout, lay_out
from training.ps.optimizers import Kept, discover, parameters_of, rebuild
from training.ps.region import STATE, VERSION, Control
from training.ps.state import SharedState, present_flags, slot_examples


@dataclass(frozen=True)
class Plan:
    """Where everything of one shard lies in its memory; the same in every process that has the same model."""

    parameters: Layout
    slots: Layout
    flags: Layout
    kept: tuple[Kept, ...]

    @property
    def nbytes(self) -> int:
        """Shared memory that the shard needs."""
        return self.flags.nbytes

    def digest(self) -> int:
        """A number that differs, all but surely, between different plans; fits an int64."""
        text = repr((self.parameters, self.slots)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")


@dataclass(frozen=True)
class Snapshot:
    """Parameters (uint8 [bytes], private copy), optimizer state dict and version, all of one moment."""

    version: int
    flat: Tensor
    optimizer: dict[str, Any]


def plan_shard(optimizer: Optimizer) -> Plan:
    """Plan the memory for an optimizer's parameters; refuses optimizers as `discover` does."""
    kept = discover(optimizer)
    parameters = lay_out([(str(i), p.detach()) for i, p in enumerate(parameters_of(optimizer))])
    slots = lay_out(slot_examples(kept), start=parameters.nbytes)
    flags = lay_out([("present", present_flags(kept))], start=slots.nbytes)
    return Plan(parameters, slots, flags, tuple(kept))


class Shard:
    """`memory` is shared, uint8 [plan.nbytes]; `optimizer` the worker's own, which stays untouched."""

    def __init__(self, plan: Plan, memory: Tensor, optimizer: Optimizer, control: Control) -> None:
        self.flat = memory[: plan.parameters.nbytes]
        self.parameters = [Parameter(view, requires_grad=True) for view in plan.parameters.views(memory)]
        self._head = control.head
        self._seen_state = 0
        self.optimizer = rebuild(optimizer, self.parameters)
        self._state = SharedState(self.optimizer, plan.kept, plan.slots.views(memory), plan.flags.views(memory)[0])

    @property
    def version(self) -> int:
        """Updates applied so far."""
        return self._head[VERSION]

    @torch.no_grad()
    def initialise(self, flat: Tensor) -> None:
        """Fill the parameters (uint8 [bytes]) and publish the state that the optimizer has from its constructor."""
        self.flat.copy_(flat)
        self._published(self._state.write())

    def apply(self, gradients: Sequence[Tensor | None], groups: Sequence[Mapping[str, Any]]) -> None:
        """One step with these gradients and the hyper-parameters of these param groups; the version counts it."""
        for own, given in zip(self.optimizer.param_groups, groups, strict=True):
            own.update({key: value for key, value in given.items() if key != "params"})
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self._state.read(new_slots=self._seen_state != self._head[STATE])
        self._seen_state = self._head[STATE]
        self.optimizer.step()
        self._published(self._state.write())
        self._head[VERSION] += 1

    def release(self) -> None:
        """Let go of the last gradients, so that the next ones find their memory free and warm; needs no lock."""
        for parameter in self.parameters:
            parameter.grad = None

    def snapshot(self) -> Snapshot:
        """Everything as it is now, in private memory."""
        self._state.read(new_slots=True)
        return Snapshot(self.version, self.flat.clone(), copy.deepcopy(self.optimizer.state_dict()))

    def restore(self, version: int, optimizer: dict[str, Any]) -> None:
        """Go on from a version with this optimizer state dict; before the first update of the run, by one process."""
        self._state.replace(optimizer)
        self._head[VERSION] = version
        self._published(True)

    def _published(self, filled: bool) -> None:
        if filled:
            self._head[STATE] += 1
            self._seen_state = self._head[STATE]
