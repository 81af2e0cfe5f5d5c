"""Memory that all processes of a run share: anonymous, inherited by fork, so that nothing can be left behind.

`Control` has a fixed size and is made before the fork. `Memory` gets its size afterwards, from the first worker that
knows the model: a LightningModule may make its parameters in `configure_model`, inside the worker.
"""

import mmap
import os
import tempfile
from typing import Final

import torch
from torch import Tensor

from training.ps.lock import LOCK_BYTES, make_lock
from training.ps.measures import StalenessHistogram, WorkerTimes

# int64 words of the header
VERSION: Final = 0  # updates applied so far; written under the lock
STOP: Final = 1  # 1: every worker ends after its current step
TORN: Final = 2  # 1: a worker died inside the lock; the parameters may be half of an update
STATE: Final = 3  # how often optimizer state became present; written under the lock
_HEADER: Final = 8

# int64 words of one worker's row, each written by that worker alone
UPDATES: Final = 0
SAMPLES: Final = 1
REFUSED: Final = 2  # pushes that came beyond the budget of updates
ARRIVALS: Final = 3  # rendezvous reached
FINISHED: Final = 4  # 1: will not push any more
DIGEST: Final = 5  # of the layout that this worker computed
# float64 words of one worker's row, seconds
COMPUTE: Final = 0
WAIT: Final = 1
COMMUNICATE: Final = 2
DATA: Final = 3
ROW: Final = 8  # words of a row: one cache line, so that workers do not disturb each other


class Control:
    """Counters, flags, times, the lock. Made before the fork; each word has one writer or is written under the lock."""

    def __init__(self, workers: int, bins: int = 128) -> None:
        self.workers, self.bins = workers, bins
        sizes = [LOCK_BYTES, 8 * _HEADER, 8 * ROW * workers, 8 * ROW * workers, 8 * bins * workers]
        self._map = mmap.mmap(-1, sum(sizes))
        parts, at = [], 0
        for size in sizes:
            parts.append(memoryview(self._map)[at : at + size])
            at += size
        self.lock = make_lock(parts[0])
        self.head = parts[1].cast("q")
        self.words = parts[2].cast("q")
        self.seconds = parts[3].cast("d")
        self.histogram = parts[4].cast("q")

    def word(self, worker: int, word: int) -> int:
        """One int64 of a worker's row."""
        return self.words[worker * ROW + word]

    def set_word(self, worker: int, word: int, value: int) -> None:
        """Set one int64 of a worker's row; only by that worker."""
        self.words[worker * ROW + word] = value

    def column(self, word: int) -> list[int]:
        """One int64 of every worker."""
        return [self.words[worker * ROW + word] for worker in range(self.workers)]

    def worker_times(self) -> list[WorkerTimes]:
        """Every worker's seconds and counts as they are now."""
        return [
            WorkerTimes(
                compute=self.seconds[worker * ROW + COMPUTE],
                wait=self.seconds[worker * ROW + WAIT],
                communicate=self.seconds[worker * ROW + COMMUNICATE],
                data=self.seconds[worker * ROW + DATA],
                updates=self.word(worker, UPDATES),
                samples=self.word(worker, SAMPLES),
            )
            for worker in range(self.workers)
        ]

    def staleness(self) -> StalenessHistogram:
        """A copy of the histogram as it is now."""
        flat = torch.tensor(self.histogram.tolist(), dtype=torch.int64)
        return StalenessHistogram(flat.view(self.workers, self.bins))


class Memory:
    """Bytes for parameters and optimizer state. `allocate` once by one process, then `map` in every process."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self._descriptor = os.memfd_create("parameters")
        else:  # an unlinked file: as anonymous, possibly on a disk
            with tempfile.TemporaryFile() as file:
                self._descriptor = os.dup(file.fileno())

    def allocate(self, size: int) -> None:
        """Reserve `size` bytes of zeros, at once: too little memory is an OSError here, not a SIGBUS later."""
        os.ftruncate(self._descriptor, max(size, 1))
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, 0, max(size, 1))

    def map(self) -> Tensor:
        """All of it as uint8 [size]; freed when the last process that holds it ends."""
        size = os.fstat(self._descriptor).st_size
        return torch.frombuffer(mmap.mmap(self._descriptor, size), dtype=torch.uint8)

    def close(self) -> None:
        """Give up this process's handle; tensors from `map` stay valid."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
