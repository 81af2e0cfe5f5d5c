"""How one worker's gradients for one optimizer get to the shards: copied from the device, and encoded by a codec."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from scalebook.training.engine.hyper import Groups
from scalebook.training.engine.rules.codecs import rounded_to, stays_finite
from scalebook.training.engine.store.coded_traffic import Carrier
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition
from scalebook.training.engine.store.shard import Newest
from scalebook.training.engine.trace import Origin

ROW_NUMBER: Final = 8
"""Bytes of a row's number in a table."""


class EncodedPush(NamedTuple):
    """A gradient ready to send. `frames`: by shard, None if it is sent raw. `sizes`: bytes by shard."""

    gradients: list[Tensor | None]
    frames: list[Tensor] | None
    sizes: Sequence[int]


class Push(NamedTuple):
    """A worker's `seq`-th gradient for one optimizer, on its way to the shards.

    `bases`: for each shard the version that it was computed from, and where that lies. `pulled`: when these were
    pulled, in seconds of the run's clock. `gradients`: one for each parameter, in the optimizer's order and the
    parameter's shape; None if the backward pass left none. They may lie on the device if the host copies them from
    there. `groups`: the param groups with the present hyper-parameters. `valid` False: the gradient must not be applied
    (a loss scaler found infinities), but the rule counts the push. `sizes`, `frames`: as in `EncodedPush`.
    """

    worker: int
    seq: int
    bases: Sequence[Newest]
    pulled: float
    gradients: list[Tensor | None]
    groups: Groups
    valid: bool
    sizes: Sequence[int]
    frames: list[Tensor] | None = None

    def origin(self, shard: int) -> Origin:
        """The gradient's origin at one shard."""
        base = self.bases[shard]
        return Origin(self.worker, self.seq, base.version, base.buffer, self.pulled)


class GradientTransfer:
    """`pipelines`: the host takes gradients from the device itself, and applies one shard while the next arrives."""

    def __init__(self, partition: OptimizerPartition, pipelines: bool) -> None:
        self.partition, self._pipelines = partition, pipelines
        self._push_codec = partition.control.settings.push_codec
        fields = partition.plan.gradients.fields
        self._bytes = [[(place, fields[place].nbytes) for place in shard.plan.parameters] for shard in partition.shards]
        self._sizes = [sum(size for _, size in shard) for shard in self._bytes]
        self._row_bytes = [
            [(table.place, ROW_NUMBER + table.row_bytes) for table in shard.plan.tables] for shard in partition.shards
        ]
        self._coded = partition.coded
        self._keeps_residuals = True
        self._pipelined: Carrier | None = None
        self._whole: Carrier | None = None
        self._rounded: Carrier | None = None
        self._parameters: Sequence[Tensor] = ()

    @property
    def is_pipelined(self) -> bool:
        """Whether gradients stay on the device until `start_copy`."""
        return self._pipelined is not None

    @property
    def carriers(self) -> list[Carrier]:
        """Those that copy gradients from the device."""
        return [carrier for carrier in (self._rounded, self._whole) if carrier is not None]

    def open(self, parameters: Sequence[Tensor]) -> None:
        """Copy gradients from the device of these parameters; called once, for a worker that computes there."""
        if self.partition.device.is_host:
            return
        plan, device = self.partition.plan, self.partition.device
        halves = rounded_to(self._push_codec)
        if halves is not None and not plan.rows.nbytes:
            self._rounded = Carrier(plan, device, parameters, dtype=getattr(torch, halves))
            self._parameters = parameters
            return
        pipelines = self._pipelines and self._coded is None
        self._whole = Carrier(plan, device, parameters, lands=not pipelines or not plan.slots)
        self._pipelined = self._whole if pipelines else None

    def stand_in(self) -> None:
        """The gradients are another process's, which keeps their residuals."""
        self._keeps_residuals = False

    def close(self) -> None:
        """Release the memory of copies at the end of the worker, when nothing is under way."""
        for carrier in self.carriers:
            carrier.release()

    def stage(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """Move computed gradients to where they can stay until they are pushed."""
        return gradients

    def sizes(self, gradients: Sequence[Tensor | None]) -> Sequence[int]:
        """Bytes, by shard, of the `gradients` that are not None; one entry for each parameter. A sparse gradient counts
        its row numbers and values."""
        if all(gradient is not None for gradient in gradients):
            sizes = self._sizes
        else:
            sizes = [sum(size for place, size in shard if gradients[place] is not None) for shard in self._bytes]
        if not self.partition.plan.rows.nbytes:
            return sizes
        return [size + _of_rows(gradients, of) for size, of in zip(sizes, self._row_bytes, strict=True)]

    def encode(self, worker: int, seq: int, gradients: list[Tensor | None], valid: bool) -> EncodedPush:
        """The push as it travels: frames if there is a codec, else the gradients."""
        if self._coded is not None and not valid:  # only that it is there travels
            return EncodedPush([None] * len(gradients), None, [0] * len(self.partition.shards))
        if self._pipelined is None:
            gradients = self._copied_for_codec(gradients)
        if self._coded is None:
            return EncodedPush(gradients, None, self.sizes(gradients))
        frames = self._coded.encode(worker, seq, gradients)
        return EncodedPush(gradients, frames, [frame.numel() for frame in frames])

    def decode(self, encoded: EncodedPush) -> list[Tensor | None]:
        """The gradients of a push that has arrived; valid until the next call."""
        if self._coded is None or encoded.frames is None:
            return encoded.gradients
        return self._coded.decode(encoded.frames)

    def store_residual(self, worker: int, seq: int) -> None:
        """A push was admitted: what its codec left out counts for the worker's next one."""
        if self._coded is not None and self._keeps_residuals:
            self._coded.store_residual(worker, seq)

    def repair_residual(self, worker: int) -> None:
        """As `store_residual`, for a worker that died in a push and is back, once that push is settled."""
        if self._coded is not None and self._keeps_residuals:
            self._coded.repair_residual(worker, self.partition.shards)

    # --- copies from the device -------------------------------------------------------------------------------------

    def start_copy(self, gradients: list[Tensor | None], slot: int | None = None) -> None:
        """If pipelined: begin to copy the shards' gradients, to a slot or to memory of this object."""
        if self._pipelined is not None:
            memory = None if slot is None else self.partition.slots.memory(slot)
            self._pipelined.start_copy(gradients, memory, self.partition.order)

    def await_copy(self, number: int) -> None:
        """If pipelined: wait until a shard's part is here."""
        if self._pipelined is not None:
            self._pipelined.await_copy(number)

    def copied(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """The gradients given to `start_copy`, on the host; each shard's after its `await_copy`."""
        return gradients if self._pipelined is None else self._pipelined.copied(gradients)

    def copy_to_host(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """The gradients on the host; valid until the next call."""
        if self._whole is None and self._parameters:
            self._whole = Carrier(self.partition.plan, self.partition.device, self._parameters)
        return gradients if self._whole is None else self._whole.copy_to_host(gradients)

    def _copied_for_codec(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """The gradients on the host, ready to be encoded. For a codec that rounds to 16 bits the device rounds them
        before the copy. If that makes a value infinite, the frame is uncompressed, and its values are copied
        separately."""
        if self._rounded is None:
            return self.copy_to_host(gradients)
        halves = self._rounded.copy_to_host(gradients)
        is_finite = stays_finite(self._push_codec) or all(
            bool(torch.isfinite(one).all()) for one in halves if one is not None
        )
        return halves if is_finite else self.copy_to_host(gradients)


def _of_rows(gradients: Sequence[Tensor | None], tables: Sequence[tuple[int, int]]) -> int:
    """Bytes of sparse gradients; `tables`: places, and bytes of a row."""
    return sum(len(g._values()) * size for place, size in tables if (g := gradients[place]) is not None)
