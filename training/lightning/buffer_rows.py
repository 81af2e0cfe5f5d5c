"""Shared memory in which workers publish their buffers: a row for each worker, with two places for values."""

import ctypes
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import UninitializedBuffer

from scalebook.training.engine.worker import worker_end

STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True)
class Buffer:
    """A buffer of a model, by its name in its module: a forward pass may replace the tensor."""

    name: str
    module: Module
    key: str
    shape: torch.Size
    dtype: torch.dtype

    @property
    def now(self) -> Tensor | None:
        """The present tensor."""
        return self.module._buffers.get(self.key)

    @property
    def is_statistic(self) -> bool:
        """Whether it is a running mean or variance, which training does not read."""
        return isinstance(self.module, _NormBase) and self.key in STATISTICS

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize

    @property
    def is_cache(self) -> bool:
        """Whether checkpoints leave it out."""
        return self.key in self.module._non_persistent_buffers_set

    @property
    def has_its_layout(self) -> bool:
        now = self.now
        return now is not None and now.layout == torch.strided and (now.shape, now.dtype) == (self.shape, self.dtype)

    @property
    def first(self) -> str:
        """Its original shape and type, in words."""
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"

    def __str__(self) -> str:
        now = self.now
        return "None" if now is None else f"{str(now.dtype).removeprefix('torch.')} {list(now.shape)}"


def buffers_of(model: Module) -> list[Buffer]:
    """The model's buffers that have values; of several names of one tensor the first. Running statistics come first,
    then all are sorted by type, so that similar buffers are adjacent."""
    seen: set[int] = set()
    buffers: list[Buffer] = []
    for prefix, module in model.named_modules():
        for key, buffer in module._buffers.items():
            if buffer is None or id(buffer) in seen or isinstance(buffer, UninitializedBuffer):
                continue
            seen.add(id(buffer))
            if buffer.layout == torch.strided:
                name = f"{prefix}.{key}" if prefix else key
                buffers.append(Buffer(name, module, key, buffer.shape, buffer.dtype))
    return sorted(buffers, key=lambda one: (not one.is_statistic, str(one.dtype)))  # stable


class Changes:
    """Finds buffers that training changes.

    Each `pop_changed` checks the tensor's identity and torch's version counter, a microsecond per buffer. Writes
    through `.data` show only in the values, which are compared at the 1st, 2nd, 4th, 8th, ... call.
    """

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._unchanged = dict(enumerate(buffers))
        self._marks: dict[int, tuple[Tensor | None, int]] = {}
        self._digests: dict[int, int] = {}
        self._looks = 0

    def begin_watching(self) -> None:
        """Count changes from now on: at the start, and after a validation, which may change buffers."""
        for number, buffer in self._unchanged.items():
            mark = _mark(buffer.now)
            if not self._same(number, mark):
                self._marks[number], self._digests[number] = mark, digest(buffer.now)

    def pop_changed(self) -> list[int]:
        """The numbers of the buffers that have changed since; each is returned once."""
        self._looks += 1
        thorough = self._looks & (self._looks - 1) == 0
        changed = [
            number
            for number, buffer in self._unchanged.items()
            if not self._same(number, _mark(buffer.now))
            or (thorough and digest(buffer.now) != self._digests.get(number))
        ]
        for number in changed:
            self.know(number)
        return changed

    def know(self, number: int) -> None:
        """Stop watching this buffer."""
        for table in (self._unchanged, self._marks, self._digests):
            table.pop(number, None)

    def _same(self, number: int, mark: tuple[Tensor | None, int]) -> bool:
        before = self._marks.get(number)
        return before is not None and before[0] is mark[0] and before[1] == mark[1]


def digest(buffer: Tensor | None) -> int:
    """A digest of the buffer's exact values. The buffer can still be resized: `numpy()` would end that."""
    if buffer is None or not buffer.numel() or buffer.layout != torch.strided:
        return 0
    values = buffer.detach().resolve_conj()
    flat = torch.view_as_real(values) if values.is_complex() else values
    flat = flat.cpu().contiguous()
    return zlib.crc32((ctypes.c_char * flat.nbytes).from_address(flat.data_ptr()))


def _mark(buffer: Tensor | None) -> tuple[Tensor | None, int]:
    return buffer, -1 if buffer is None or buffer.is_inference() else buffer._version


_LINE: Final = 64


class BufferFate(Enum):
    """How workers share a buffer that training changes; the value is the text for people."""

    VALIDATED = "are validated and saved as the mean over workers"
    MEAN = "are set to the mean over workers at each push"
    FIRST = "are set to worker 0's values at each pull"
    OWN = "stay separate in each worker, and only worker 0's values are validated and saved"


@dataclass
class BufferRange:
    """Adjacent buffers in a place, of one type and with one fate: bytes [start, stop)."""

    fate: BufferFate
    dtype: torch.dtype
    numbers: list[int]
    sizes: list[int]
    start: int
    stop: int


class BufferRows:
    """Every worker's row: a head, and two places, each with room for all buffers. One process uses it, and writes only
    the rows of its own workers. Other processes may write meanwhile: each number is read and written atomically.

    A head has a label for each place, 0 while it is empty, and two numbers for each buffer: the label from which the
    worker's value counts (`since`; -1: it has changed, and does not count yet), and whether worker 0 has given it to
    the others before training (`given`).
    """

    def __init__(self, buffers: Sequence[Buffer], workers: int, memory: worker_end.Rows) -> None:
        self._buffers, self._workers, self._memory = buffers, workers, memory
        self._starts, self._place_bytes = _layout(buffers)
        self._head_bytes = _up(8 * (2 + 2 * len(buffers)))
        self._rows = torch.empty(0, dtype=torch.uint8)

    @property
    def _row_bytes(self) -> int:
        return self._head_bytes + 2 * self._place_bytes

    def allocate(self) -> None:
        """Allocate the rows, in worker 0, before any process maps them. Memory is used only for what is published."""
        self._memory.allocate(self._row_bytes)

    def map(self) -> None:
        """Map the rows; to be called before anything else."""
        self._rows = self._memory.map(self._row_bytes)
        heads, count = self._rows[:, : self._head_bytes].view(torch.int64).numpy(), len(self._buffers)
        self.labels, self.since, self.given = heads[:, :2], heads[:, 2 : 2 + count], heads[:, 2 + count : 2 + 2 * count]

    def runs(self, numbers: Sequence[int], fate: Callable[[int], BufferFate]) -> list[BufferRange]:
        """Group these buffers into the longest possible runs, in order."""
        runs: list[BufferRange] = []
        for number in numbers:
            buffer, start = self._buffers[number], self._starts[number]
            run = BufferRange(
                fate(number), buffer.dtype, [number], [buffer.shape.numel()], start, start + buffer.nbytes
            )
            last = runs[-1] if runs else None
            if last and (last.fate, last.dtype, last.stop) == (run.fate, run.dtype, start):
                last.numbers.append(number)
                last.sizes += run.sizes
                last.stop = run.stop
            else:
                runs.append(run)
        return runs

    def values(self, worker: int, place: int, run: BufferRange) -> Tensor:
        """The worker's published values in this place, flat."""
        start, stop = self._span(place, run)
        return self._rows[worker, start:stop].view(run.dtype)

    def next_place(self, worker: int, label: int) -> int:
        """The place for the worker's next values: that of its oldest ones, or of those with the same label."""
        newest = int(self.labels[worker, 1] > self.labels[worker, 0])
        return newest if self.labels[worker, newest] == label else 1 - newest

    def newest(self, worker: int, most: int | None = None) -> int | None:
        """The place of the worker's newest values, with a label of at most `most` if there are any; None if there are
        none."""
        labels = self.labels[worker].tolist()
        there = [place for place in range(2) if labels[place]]
        if most is not None:
            there = [place for place in there if labels[place] <= most] or there
        return max(there, key=labels.__getitem__, default=None)

    def counts(self, worker: int, place: int, run: BufferRange) -> bool:
        """Whether all values of the run in this place count."""
        since = self.since[worker, run.numbers]
        return bool(since.min() > 0) and bool(since.max() <= self.labels[worker, place])

    def publish_head(self, place: int, runs: Sequence[BufferRange]) -> None:
        """Publish the head of this worker's row, and these of its values, to workers of other nodes."""
        self._memory.publish([*(self._span(place, run) for run in runs), (0, self._head_bytes)])

    def fetch_heads(self) -> None:
        """Refresh all heads."""
        self._memory.fetch([(worker, 0, self._head_bytes) for worker in range(self._workers)])

    def readable_places(self, run: BufferRange, candidates: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those of the `candidates` (worker, place) where the run's values count; they can be read now."""
        there = [(worker, place) for worker, place in candidates if self.counts(worker, place, run)]
        if there:
            self._memory.fetch([(worker, *self._span(place, run)) for worker, place in there])
        return there

    def fetch(self, run: BufferRange, worker: int, place: int) -> Tensor:
        """The worker's values in this place, whether they count or not."""
        self._memory.fetch([(worker, *self._span(place, run))])
        return self.values(worker, place, run)

    def _span(self, place: int, run: BufferRange) -> tuple[int, int]:
        first = self._head_bytes + place * self._place_bytes
        return first + run.start, first + run.stop


def mean(values: Sequence[Tensor]) -> Tensor:
    """The mean, in single precision or better; summed in the order of `values`, so that all workers get the same
    bits."""
    if len(values) == 1:
        return values[0]
    dtype = values[0].dtype
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype
    total = values[0].to(wide, copy=True)
    for value in values[1:]:
        total += value.to(wide)
    return total / len(values)


def distance(values: Sequence[Tensor]) -> float:
    """The largest distance of a value from the mean, relative to the mean's norm."""
    exact = [value.to(torch.complex128 if value.is_complex() else torch.float64) for value in values]
    middle = mean(exact)
    norm = float(torch.linalg.vector_norm(middle))
    far = max(float(torch.linalg.vector_norm(value - middle)) for value in exact)
    return far / norm if norm else far


def _layout(buffers: Sequence[Buffer]) -> tuple[list[int], int]:
    """Where each begins, those of one type side by side; and bytes of all."""
    starts: list[int] = []
    end, before = 0, None
    for buffer in buffers:
        if buffer.dtype != before:
            end, before = _up(end), buffer.dtype
        starts.append(end)
        end += buffer.nbytes
    return starts, _up(end)


def _up(size: int) -> int:
    return -(-size // _LINE) * _LINE
