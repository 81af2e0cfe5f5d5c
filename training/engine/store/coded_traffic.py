"""Gradients and parameters on their way to and from the shards: copied from a device, or encoded in frames."""

import math
from collections.abc import Sequence, Set
from typing import Final

import torch
from torch import Tensor

from scalebook.training.engine.codecs.coder import Coder, Spec
from scalebook.training.engine.memory.device import Device, Image, Mark, Registered, landing
from scalebook.training.engine.memory.layout import with_dtype
from scalebook.training.engine.memory.region import PartitionCounters
from scalebook.training.engine.rules.codecs import Codec
from scalebook.training.engine.store.shard import Newest, Shard
from scalebook.training.engine.store.store_layout import PartitionPlan


class Carrier:
    """Copies one worker's gradients from the device, for one optimizer: one copy for each shard, usable as soon as it
    arrives.

    Before that, a shard's gradients are gathered on the device, which takes as much memory there. They go straight to a
    slot, or else to memory of their own.
    """

    def __init__(
        self,
        plan: PartitionPlan,
        device: Device,
        parameters: Sequence[Tensor],
        lands: bool = True,
        dtype: torch.dtype | None = None,
    ) -> None:
        """`lands`: allocate that memory at once. `dtype`: the device rounds to it before the copy, where no slot is
        used."""
        self._plan, self._device = plan, device
        self._layout = plan.gradients if dtype is None else with_dtype(plan.gradients, dtype)
        self._images = [
            Image(
                device, [self._layout.fields[i] for i in shard.parameters],
                [parameters[i].device for i in shard.parameters],
            )
            for shard in plan.shards
        ]  # fmt: skip
        self._marks: list[Mark] = [device.record()] * len(self._images)
        self._landing: Tensor | None = None
        self._registered: Registered | None = None
        if lands:
            self._land()

    @torch.no_grad()
    def start_copy(self, gradients: Sequence[Tensor | None], slot: Tensor | None, order: Sequence[int]) -> None:
        """Begin to copy the shards' gradients, in this order, to `slot` (uint8) or to the carrier's own memory. Call it
        only when all earlier copies have arrived: both sides reuse their memory."""
        target = self._land() if slot is None else slot
        for number in order:
            self.await_copy(number)
        for number in order:
            places, image = self._plan.shards[number].parameters, self._images[number]
            pairs = [
                (v, g) for v, place in zip(image.views, places, strict=True) if (g := gradients[place]) is not None
            ]
            if pairs:
                torch._foreach_copy_([view for view, _ in pairs], [gradient for _, gradient in pairs])
                image.down(target)
            self._marks[number] = self._device.record()

    def await_copy(self, number: int) -> None:
        """Wait until a shard's gradients are there."""
        self._device.wait(self._marks[number])

    def copied(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients given to `start_copy`, on the host; valid for each shard from its arrival to the next
        `start_copy`."""
        views = self._layout.views(self._land())
        return [None if gradient is None else view for gradient, view in zip(gradients, views, strict=True)]

    def copy_to_host(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """All of them, on the host; valid until the next call."""
        every = range(len(self._images))
        self.start_copy(gradients, None, every)
        for number in every:
            self.await_copy(number)
        return self.copied(gradients)

    def release(self) -> None:
        """Unregister the memory, when all has arrived."""
        for number in range(len(self._images)):
            self.await_copy(number)
        if self._registered is not None:
            self._registered.release()

    def _land(self) -> Tensor:
        if self._landing is None:
            self._landing, self._registered = landing(self._layout.nbytes, self._device)
        return self._landing


TRIES: Final = 1000


class CodedPushes:
    """The pushes of one optimizer, a frame for each shard; in each process that pushes.

    A worker's residual lies in shared memory twice. `encode` writes the inactive copy, and `store_residual` activates
    it by one store once the gradient is admitted. So a dropped gradient leaves the residual unchanged, and a restarted
    worker goes on with it.
    """

    def __init__(
        self, number: int, plan: PartitionPlan, memory: Tensor, counters: PartitionCounters, codec: Codec
    ) -> None:
        self._number, self._plan, self._counters = number, plan, counters
        self._memory = memory
        self._coders = [
            Coder(codec, [Spec(field.shape, field.dtype) for field in shard.version.fields]) for shard in plan.shards
        ]
        sizes = [sum(math.prod(field.shape) for field in shard.version.fields) for shard in plan.shards]
        self._decoded = [torch.empty(size) for size in sizes]
        self._places = len(plan.gradients.fields)

    def encode(self, worker: int, seq: int, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        """The frames of a push, by shard; `gradients` by place."""
        frames = []
        for number, (shard, coder) in enumerate(zip(self._plan.shards, self._coders, strict=True)):
            before = after = None
            if shard.kept:
                counts = self._counters.shards[number].kept[worker] & 1
                before = shard.kept_memory(self._memory, worker, counts)
                after = shard.kept_memory(self._memory, worker, 1 - counts)
            mine = [gradients[place] for place in shard.parameters]
            frames.append(coder.encode(mine, before, self._draw(worker, seq, number), after).frame)
        return frames

    def decode(self, frames: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients in the frames of a push, by place; valid until the next call."""
        gradients: list[Tensor | None] = [None] * self._places
        for number, (shard, coder) in enumerate(zip(self._plan.shards, self._coders, strict=True)):
            decoded = coder.decode(frames[number], self._decoded[number])
            for place, gradient in zip(shard.parameters, decoded, strict=True):
                gradients[place] = gradient
        return gradients

    def store_residual(self, worker: int, seq: int) -> None:
        """The push has been admitted: its new residual counts for the next one."""
        for plan, counters in zip(self._plan.shards, self._counters.shards, strict=True):
            if plan.kept:
                counters.kept[worker] = seq << 1 | 1 - (counters.kept[worker] & 1)

    def repair_residual(self, worker: int, shards: Sequence[Shard]) -> None:
        """Repair the residual of a worker that may have died between its last push and `store_residual`."""
        begun = self._counters.begun[worker]
        for plan, shard in zip(self._plan.shards, shards, strict=True):
            if plan.kept and shard.applied(worker) >= begun > shard.counters.kept[worker] >> 1:
                shard.counters.kept[worker] = begun << 1 | 1 - (shard.counters.kept[worker] & 1)

    def residuals(self, worker: int) -> list[Tensor]:
        """Copies of a worker's residual, by shard; while it pushes, of some moment between two of its pushes."""
        return [self._read(number, worker) for number, plan in enumerate(self._plan.shards) if plan.kept]

    def counting(self, worker: int) -> list[Tensor]:
        """The residual that counts, without a copy; for the worker itself."""
        pairs = enumerate(self._plan.shards)
        return [
            p.kept_memory(self._memory, worker, self._counters.shards[n].kept[worker] & 1) for n, p in pairs if p.kept
        ]

    def room(self, worker: int) -> list[Tensor]:
        """Where a worker's residual may be written before `store_residual` makes it count."""
        pairs = enumerate(self._plan.shards)
        return [
            p.kept_memory(self._memory, worker, 1 - (self._counters.shards[n].kept[worker] & 1))
            for n, p in pairs
            if p.kept
        ]

    def most(self) -> list[int]:
        """Bytes of the largest frames, by shard."""
        return [coder.most for coder in self._coders]

    def restore(self, worker: int, residuals: Sequence[Tensor]) -> None:
        """Before the first update: set a worker's residual, if it fits these shards."""
        plans = [plan for plan in self._plan.shards if plan.kept]
        if [tensor.numel() for tensor in residuals] != [plan.kept for plan in plans]:
            return
        for plan, tensor in zip(plans, residuals, strict=True):
            for which in (0, 1):
                plan.kept_memory(self._memory, worker, which).copy_(tensor)

    def _read(self, number: int, worker: int) -> Tensor:
        """A copy of one shard's residual; read again if the worker has begun to write there meanwhile."""
        plan, counters = self._plan.shards[number], self._counters.shards[number]
        for _ in range(TRIES):
            counted = counters.kept[worker]
            copy = plan.kept_memory(self._memory, worker, counted & 1).clone()
            if counters.kept[worker] == counted:
                return copy
        raise TimeoutError(f"worker {worker} pushed so fast that its residual could not be copied in {TRIES} tries.")

    def _draw(self, worker: int, seq: int, shard: int) -> int:
        return seq << 32 | worker << 16 | self._number << 12 | shard


class CodedPulls:
    """One worker's pulls of one optimizer, a frame for each shard. `known`: the worker's parameters, by place, as of
    the last pull, in their own type, on the CPU. The first pull is sent raw.

    With a codec that is not `whole`, frames carry the difference between the newest and `known`, so the loss of one
    frame is part of the next difference: errors feed back by themselves.
    """

    def __init__(self, plan: PartitionPlan, codec: Codec, worker: int, pulled: list[Tensor]) -> None:
        self._plan, self._delta, self._worker, self.known = plan, not codec.whole, worker, pulled
        self._count = 0
        specs = [[Spec(field.shape, field.dtype) for field in shard.version.fields] for shard in plan.shards]
        self._coders = [Coder(codec, of_shard, codec.ARGUMENT, feedback=self._delta) for of_shard in specs]

    @torch.no_grad()
    def know(self, versions: Sequence[Newest], shards: Sequence[Shard]) -> None:
        """These versions, one for each shard, have come raw."""
        for shard, newest in zip(shards, versions, strict=True):
            for place, value in zip(shard.plan.parameters, shard.views[newest.buffer], strict=True):
                self.known[place].copy_(value)

    def most(self) -> list[int]:
        """Bytes of the largest frames, by shard."""
        return [coder.most for coder in self._coders]

    def advance(self, number: int, newest: Sequence[Tensor], without: Set[int]) -> int:
        """Update `known` for one shard; returns the bytes of its frame. `newest`: the shard's parameters; those at the
        places in `without` are not sent."""
        frame = self.encode(number, newest, without)
        self.learn(number, frame)
        return frame.numel()

    @torch.no_grad()
    def encode(self, number: int, newest: Sequence[Tensor], without: Set[int]) -> Tensor:
        """The frame of one shard's newest parameters, for another process's `learn`."""
        self._count += 1  # each draws anew, also of one version
        places, coder = self._plan.shards[number].parameters, self._coders[number]
        given: list[Tensor | None] = [
            None if place in without else one - self.known[place] if self._delta else one
            for place, one in zip(places, newest, strict=True)
        ]
        return coder.encode(given, None, 1 << 63 | self._count << 16 | self._worker).frame

    @torch.no_grad()
    def learn(self, number: int, frame: Tensor) -> None:
        """Update `known` from a frame. FrameError if it is none."""
        places, coder = self._plan.shards[number].parameters, self._coders[number]
        for place, decoded in zip(places, coder.decode(frame), strict=True):
            if decoded is not None and self._delta:
                self.known[place].add_(decoded)
            elif decoded is not None:
                self.known[place].copy_(decoded)
