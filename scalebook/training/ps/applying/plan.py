"""Where everything of one optimizer lies in shared memory; the same in every process that has the same model."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.optim import Optimizer

from scalebook.training.ps.memory.layout import ALIGNMENT, Layout, cut, lay_out
from scalebook.training.ps.optimizer.hyper import encode
from scalebook.training.ps.optimizer.rebuilding import StateEntry, discover, groups_of, parameters_of, refuse_coupling
from scalebook.training.ps.policy.settings import Settings

ROOM: Final = 1024  # bytes by which hyper-parameters may grow, as numbers get more digits


@dataclass(frozen=True)
class ShardPlan:
    """One shard: which parameters and groups of its optimizer, the layout of one version, and of its state.

    `state` has the optimizer's slots, then a flag for each slot, then what delay compensation keeps. The versions begin
    at byte `versions_at`, the two states at `state_at`. Where codecs have error feedback, each of the `keepers`, which
    are the workers, keeps `kept` numbers (fp32), twice: the last ones, and those of the push under way.
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

    @property
    def state_bytes(self) -> int:
        """Bytes of one of the two states; 0 where nothing is kept."""
        return self.squares.nbytes

    @property
    def state_at(self) -> int:
        return self.versions_at + self.buffers * self.version.nbytes

    @property
    def kept_at(self) -> int:
        return -(-(self.state_at + 2 * self.state_bytes) // ALIGNMENT) * ALIGNMENT

    @property
    def end(self) -> int:
        return self.kept_at + 2 * self.keepers * self._kept_bytes

    @property
    def _kept_bytes(self) -> int:
        return -(-4 * self.kept // ALIGNMENT) * ALIGNMENT

    def version_at(self, buffer: int) -> int:
        """The byte where the version in `buffer` begins."""
        return self.versions_at + buffer * self.version.nbytes

    def version_memory(self, memory: Tensor, buffer: int) -> Tensor:
        """The bytes of the version in `buffer`, a view into `memory` (uint8)."""
        return memory[self.version_at(buffer) : self.version_at(buffer + 1)]

    def state_memory(self, memory: Tensor, which: int) -> Tensor:
        """The bytes of state 0 or 1, a view into `memory` (uint8)."""
        start = self.state_at + which * self.state_bytes
        return memory[start : start + self.state_bytes]

    def kept_memory(self, memory: Tensor, worker: int, which: int) -> Tensor:
        """What a worker keeps from one push to the next, fp32 [kept]: 0 or 1 of the two."""
        start = self.kept_at + (2 * worker + which) * self._kept_bytes
        return memory[start : start + 4 * self.kept].view(torch.float32)


@dataclass(frozen=True)
class SectionPlan:
    """One optimizer: its shards, and the slots where gradients lie that are gathered or wait for a server.

    `gradients` is the layout of one slot's gradients, all shards, in the order of the optimizer's parameters; behind
    them a flag for each (uint8, 1: there is one), and the hyper-parameters: their length (int64) and JSON.
    """

    shards: tuple[ShardPlan, ...]
    gradients: Layout
    flags: Layout
    settings: Layout
    slots: int
    slots_at: int

    @property
    def end(self) -> int:
        return self.slots_at + self.slots * self.settings.nbytes

    def slot_memory(self, memory: Tensor, slot: int) -> Tensor:
        """The bytes of one slot, a view into `memory` (uint8)."""
        size = self.settings.nbytes
        return memory[self.slots_at + slot * size : self.slots_at + (slot + 1) * size]


def plan_section(
    optimizer: Optimizer, settings: Settings, workers: int, start: int = 0, alone: bool = False
) -> SectionPlan:
    """Plan the memory of one optimizer from byte `start`; refuses optimizers as `discover` and `refuse_coupling` do.

    `alone`: one process plays all workers; a round's gradients are then one sum.
    """
    entries = discover(optimizer)
    parameters = [(str(place), p.detach()) for place, p in enumerate(parameters_of(optimizer))]
    if settings.shards > len(parameters):
        raise ValueError(
            f"trainer.strategy.init_args.shards: {settings.shards} shards for the {len(parameters)} parameters of "
            f"{type(optimizer).__name__}. Write at most {len(parameters)}."
        )
    settings.push_codec.check([tuple(p.shape) for _, p in parameters], settings.push_codec.KEY)
    cuts = [tuple(int(name) for name, _ in run) for run in cut(parameters, settings.shards)]
    refuse_coupling(optimizer, cuts)
    shards = []
    for places in cuts:
        shard = _plan_shard(optimizer, [parameters[i] for i in places], entries, settings, workers, start)
        shards.append(shard)
        start = shard.end
    slots = min(1, settings.slots(workers)) if alone else settings.slots(workers)
    gradients = lay_out(parameters)
    flags = lay_out([("present", torch.zeros(len(parameters), dtype=torch.uint8))], start=gradients.nbytes)
    length = 8 + 2 * len(encode(optimizer.param_groups)) + ROOM if slots else 8
    room = lay_out([("settings", torch.zeros(length, dtype=torch.uint8))], start=flags.nbytes)
    return SectionPlan(tuple(shards), gradients, flags, room, slots, start)


def _plan_shard(
    optimizer: Optimizer,
    parameters: Sequence[tuple[str, Tensor]],
    entries: Sequence[StateEntry],
    settings: Settings,
    workers: int,
    start: int,
) -> ShardPlan:
    places = tuple(int(name) for name, _ in parameters)
    mine = tuple(
        StateEntry(places.index(k.parameter), k.name, k.example, k.number) for k in entries if k.parameter in places
    )
    adaptive = settings.keeps_squares
    slots = lay_out([(f"{k.parameter}.{k.name}", k.example) for k in mine])
    flags = lay_out([("present", torch.zeros(len(mine), dtype=torch.uint8))] if mine else [], start=slots.nbytes)
    squares = lay_out([(name, p) for name, p in parameters] if adaptive else [], start=flags.nbytes)
    start = -(-start // ALIGNMENT) * ALIGNMENT
    groups = tuple(groups_of(optimizer, places))
    kept = settings.push_codec.kept([tuple(p.shape) for _, p in parameters])
    version, buffers = lay_out(list(parameters)), settings.buffers(workers)
    return ShardPlan(places, groups, version, slots, flags, squares, mine, start, buffers, kept, workers if kept else 0)


def digest(plans: Sequence[SectionPlan], settings: Settings) -> int:
    """A number that differs, all but surely, between different plans; fits an int64."""
    layouts = [[(s.version, s.slots, s.parameters) for s in plan.shards] for plan in plans]
    text = repr((layouts, settings)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
