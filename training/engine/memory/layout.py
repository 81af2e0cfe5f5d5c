"""Where each tensor lies in the flat memory of its shard."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

from scalebook.training.engine.rules.argument_error import ArgumentError

ALIGNMENT: Final = 64  # bytes: one cache line, and enough for every vector instruction


@dataclass(frozen=True)
class LayoutEntry:
    """One tensor in a flat buffer: `offset` in bytes, a multiple of ALIGNMENT; `stride` in elements."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, without padding."""
        return self.dtype.itemsize * _numel(self.shape)

    def view(self, buffer: Tensor) -> Tensor:
        """The tensor, as a view into `buffer` (uint8 [n])."""
        typed = buffer[self.offset : self.offset + self.nbytes].view(self.dtype)
        return typed.as_strided(self.shape, self.stride)


@dataclass(frozen=True)
class Layout:
    """The fields of one shard, in order, and the bytes they take, padding included."""

    fields: tuple[LayoutEntry, ...]
    nbytes: int

    def views(self, buffer: Tensor) -> list[Tensor]:
        """One view per field into `buffer` (uint8 [nbytes or more])."""
        return [field.view(buffer) for field in self.fields]


def lay_out(tensors: Sequence[tuple[str, Tensor]], start: int = 0) -> Layout:
    """Lay tensors out one after the other from byte `start`, each aligned; a dense tensor keeps its memory format."""
    fields, offset = [], _aligned(start)
    for name, tensor in tensors:
        stride = tensor.stride() if _dense(tensor) else torch.empty(tensor.shape, device="meta").stride()
        field = LayoutEntry(name, tuple(tensor.shape), tuple(stride), tensor.dtype, offset)
        fields.append(field)
        offset = _aligned(offset + field.nbytes)
    return Layout(tuple(fields), offset)


def with_dtype(layout: Layout, dtype: torch.dtype) -> Layout:
    """The layout of the same tensors in another type."""
    fields, offset = [], 0
    for field in layout.fields:
        fields.append(replace(field, dtype=dtype, offset=offset))
        offset = _aligned(offset + fields[-1].nbytes)
    return Layout(tuple(fields), offset)


def split_into_shards(tensors: Sequence[tuple[str, Tensor]], shards: int) -> list[list[tuple[str, Tensor]]]:
    """Cut a list of tensors, in order, into `shards` runs whose largest is as small as possible.

    ValueError when there are fewer tensors than shards.
    """
    if not 1 <= shards <= len(tensors):
        raise ArgumentError(
            "out-of-bounds",
            "shards",
            f"is {shards}, but there are only {len(tensors)} parameters",
            f"Use between 1 and {len(tensors)}.",
        )
    sizes = [max(tensor.numel() * tensor.element_size(), 1) for _, tensor in tensors]
    low, high = max(sizes), sum(sizes)
    while low < high:
        middle = (low + high) // 2
        if len(list(_runs(sizes, middle, shards))) <= shards:
            high = middle
        else:
            low = middle + 1
    borders = [*_runs(sizes, low, shards), len(sizes)]
    return [list(tensors[a:b]) for a, b in pairwise(borders)]


def _runs(sizes: list[int], capacity: int, shards: int) -> Iterator[int]:
    """The first index of each run when runs are filled up to `capacity` bytes and one tensor is left for each further
    shard."""
    filled, run = capacity, 0
    for index, size in enumerate(sizes):
        left_after = len(sizes) - index
        if filled + size > capacity or left_after <= shards - run:
            yield index
            filled, run = 0, run + 1
        filled += size


def _dense(tensor: Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in any order of dimensions."""
    dims = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    expected = 1
    for stride, size in dims:
        if stride != expected:
            return False
        expected *= size
    return True


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _numel(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
