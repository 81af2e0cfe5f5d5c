"""The memory in which workers show each other their buffers: a row for each of them, with two places for values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import torch
from torch import Tensor

from scalebook.training.ps.worker.end import Rows
from scalebook.training.strategies.changed_buffers import Buffer

_LINE: Final = 64


class Fate(Enum):
    """What becomes of a buffer that training changes; the value is how it is said."""

    VALIDATED = "are validated and saved as the mean of the workers'"
    MEAN = "become the mean of the workers' with each push"
    FIRST = "become worker 0's with each pull"
    OWN = "are each worker's own, and worker 0's are validated and saved"


@dataclass
class Stretch:
    """Buffers that lie side by side in a place, of one type, of which one thing becomes: bytes [start, stop)."""

    fate: Fate
    dtype: torch.dtype
    numbers: list[int]
    sizes: list[int]
    start: int
    stop: int


class BufferRows:
    """Every worker's row: a head, and two places that have room for all buffers each. Calls are by one process, which
    writes the rows of its own workers alone. Another may write while this one reads: each number is whole.

    A head has a label for each place, 0 while it is empty, and two numbers for each buffer: the label from which on
    the worker's value counts (`since`; -1: it has changed, and does not count yet), and whether worker 0 has given it
    to the others before training (`given`).
    """

    def __init__(self, buffers: Sequence[Buffer], workers: int, memory: Rows) -> None:
        self._buffers, self._workers, self._memory = buffers, workers, memory
        self._starts, self._place_bytes = _layout(buffers)
        self._head_bytes = _up(8 * (2 + 2 * len(buffers)))
        self._rows = torch.empty(0, dtype=torch.uint8)

    @property
    def _row_bytes(self) -> int:
        return self._head_bytes + 2 * self._place_bytes

    def allocate(self) -> None:
        """By worker 0, before anybody maps them. Memory is taken for what is shown, when it is."""
        self._memory.allocate(self._row_bytes)

    def map(self) -> None:
        """Before anything else here."""
        self._rows = self._memory.map(self._row_bytes)
        heads, count = self._rows[:, : self._head_bytes].view(torch.int64).numpy(), len(self._buffers)
        self.labels, self.since, self.given = heads[:, :2], heads[:, 2 : 2 + count], heads[:, 2 + count : 2 + 2 * count]

    def runs(self, numbers: Sequence[int], fate: Callable[[int], Fate]) -> list[Stretch]:
        """As long as can be, of these buffers, in the order in which they lie."""
        runs: list[Stretch] = []
        for number in numbers:
            buffer, start = self._buffers[number], self._starts[number]
            run = Stretch(fate(number), buffer.dtype, [number], [buffer.shape.numel()], start, start + buffer.nbytes)
            last = runs[-1] if runs else None
            if last and (last.fate, last.dtype, last.stop) == (run.fate, run.dtype, start):
                last.numbers.append(number)
                last.sizes += run.sizes
                last.stop = run.stop
            else:
                runs.append(run)
        return runs

    def values(self, worker: int, place: int, run: Stretch) -> Tensor:
        """What the worker shows there, flat."""
        start, stop = self._span(place, run)
        return self._rows[worker, start:stop].view(run.dtype)

    def next_place(self, worker: int, label: int) -> int:
        """Where the worker's next values go: in the place of its oldest, or of those with the same label."""
        newest = int(self.labels[worker, 1] > self.labels[worker, 0])
        return newest if self.labels[worker, newest] == label else 1 - newest

    def newest(self, worker: int, most: int | None = None) -> int | None:
        """Where the worker's newest are; those with a label of at most `most`, if there are some."""
        labels = self.labels[worker].tolist()
        there = [place for place in range(2) if labels[place]]
        if most is not None:
            there = [place for place in there if labels[place] <= most] or there
        return max(there, key=labels.__getitem__, default=None)

    def counts(self, worker: int, place: int, run: Stretch) -> bool:
        """Whether all values of the run there do."""
        since = self.since[worker, run.numbers]
        return bool(since.min() > 0) and bool(since.max() <= self.labels[worker, place])

    def show(self, place: int, runs: Sequence[Stretch]) -> None:
        """Let the workers of other machines see the head of this worker's row, and these of its values."""
        self._memory.show([*(self._span(place, run) for run in runs), (0, self._head_bytes)])

    def look(self) -> None:
        """See all heads as they are now."""
        self._memory.look([(worker, 0, self._head_bytes) for worker in range(self._workers)])

    def look_at(self, run: Stretch, shown: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Of these workers' places those where the run's values count, which can be read now."""
        there = [(worker, place) for worker, place in shown if self.counts(worker, place, run)]
        if there:
            self._memory.look([(worker, *self._span(place, run)) for worker, place in there])
        return there

    def fetch(self, run: Stretch, worker: int, place: int) -> Tensor:
        """The values there, whether they count or not."""
        self._memory.look([(worker, *self._span(place, run))])
        return self.values(worker, place, run)

    def _span(self, place: int, run: Stretch) -> tuple[int, int]:
        first = self._head_bytes + place * self._place_bytes
        return first + run.start, first + run.stop


def mean(values: Sequence[Tensor]) -> Tensor:
    """In single precision or better; in the order of `values`, so that it has the same bits for all who ask."""
    if len(values) == 1:
        return values[0]
    dtype = values[0].dtype
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype
    total = values[0].to(wide, copy=True)
    for one in values[1:]:
        total += one.to(wide)
    return total / len(values)


def distance(values: Sequence[Tensor]) -> float:
    """The largest of these from their mean, in parts of its norm."""
    exact = [one.to(torch.complex128 if one.is_complex() else torch.float64) for one in values]
    middle = mean(exact)
    norm = float(torch.linalg.vector_norm(middle))
    far = max(float(torch.linalg.vector_norm(one - middle)) for one in exact)
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
