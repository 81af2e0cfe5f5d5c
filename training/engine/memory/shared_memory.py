"""The memory for parameters, optimizer state and gradients: an anonymous file that the processes of a run inherit and
map. Nothing is left of it when the last of them ends.

Its size is set after the fork, by the first worker that knows the model, since a LightningModule may make its
parameters in `configure_model`, inside the worker.

The memory consists of huge pages, if the kernel has some and lets a process ask for them (MADV_COLLAPSE, Linux 6.1). In
each step, one version of the parameters is read and another one written: with pages of 4 KiB, these are more pages than
the processor keeps addresses for.
"""

import ctypes
import errno
import mmap
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

_MADV_COLLAPSE: Final = 25  # linux/mman.h, since Linux 6.1
_MAP_FIXED: Final = 0x10
_FAILED: Final = ctypes.c_void_p(-1).value
_MOST_HUGE: Final = 256 << 20
"""Larger memory keeps small pages: reading it takes as long as the memory allows, and huge pages for it take seconds to
find where memory is fragmented."""
_HUGE_PAGE: Final = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


@cache
def _huge_page() -> int:
    """Bytes of a huge page; 0 if the kernel has none."""
    try:
        return int(_HUGE_PAGE.read_text())
    except (OSError, ValueError):
        return 0


def _has_huge_pages(size: int) -> bool:
    """Whether memory of `size` bytes is to consist of huge pages."""
    return 0 < _huge_page() <= size <= _MOST_HUGE


class Memory:
    """Memory for parameters, state and gradients. One process calls `allocate`, then every process calls `map`."""

    def __init__(self) -> None:
        self._descriptor = anonymous_file("parameters")

    def allocate(self, size: int) -> None:
        """Reserve `size` bytes of zeros at once, so that too little memory is an OSError here and not a SIGBUS
        later."""
        os.ftruncate(self._descriptor, max(size, 1))
        try:
            if _has_huge_pages(size):
                self._take_huge_pages(size)
            os.posix_fallocate(self._descriptor, 0, max(size, 1))
        except OSError as error:  # ENOSPC, which would read as if a disk were full
            raise OSError(errno.ENOMEM, f"Cannot allocate memory: {size:,} bytes") from error

    def reserve(self, size: int) -> None:
        """Reserve address space for `size` bytes of zeros; pages are taken when written. Instead of `allocate`."""
        os.ftruncate(self._descriptor, max(size, 1))

    def map(self) -> Tensor:
        """All of it, as uint8 [size]; freed when the last process that maps it ends."""
        return torch.frombuffer(self._mapped(mmap.MAP_SHARED), dtype=torch.uint8)

    def map_privately(self) -> memoryview:
        """All of it, copy-on-write: what this process writes is visible here only, page by page."""
        return self._mapped(mmap.MAP_PRIVATE)

    def close(self) -> None:
        """Close this process's descriptor; tensors from `map` stay valid."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _mapped(self, kind: int) -> memoryview:
        """A mapping of the whole file."""
        size, protection = os.fstat(self._descriptor).st_size, mmap.PROT_READ | mmap.PROT_WRITE
        if _has_huge_pages(size):
            with suppress(OSError):  # where addresses are counted as memory, there may be too little
                return self._mapped_aligned(kind, size, protection)
        return memoryview(mmap.mmap(self._descriptor, size, flags=kind, prot=protection))

    def _mapped_aligned(self, kind: int, size: int, protection: int) -> memoryview:
        """A mapping at an address that is a multiple of a huge page: elsewhere the file's huge pages are mapped as
        small ones."""
        huge = _huge_page()
        around = mmap.mmap(-1, size + huge, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # it owns the addresses
        skipped = -address_of(memoryview(around)) % huge
        part = memoryview(around)[skipped : skipped + size]
        if _libc().mmap(address_of(part), size, protection, kind | _MAP_FIXED, self._descriptor, 0) == _FAILED:
            raise OSError(ctypes.get_errno(), f"Cannot map {size:,} bytes of shared memory")
        return part

    def _take_huge_pages(self, size: int) -> None:
        """Fill the file with huge pages, as far as the kernel has any. Without them, training is only slower."""
        huge = _huge_page()
        whole = size // huge * huge
        for start in range(0, whole, huge):
            os.pwrite(self._descriptor, b"\0", start)  # a part without any page would stay empty
        mapping = self._mapped(mmap.MAP_SHARED)
        _libc().madvise(address_of(mapping), whole, _MADV_COLLAPSE)


def discard(part: memoryview) -> None:
    """Discard what was written into whole pages of a private mapping: they are the file's again."""
    if _libc().madvise(address_of(part), len(part), mmap.MADV_DONTNEED) != 0:
        raise OSError(ctypes.get_errno(), f"Cannot discard {len(part):,} bytes")


def address_of(memory: memoryview) -> int:
    """The address of writable memory."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class SharedRows:
    """A row of bytes for each worker of a run, which that worker writes and all read.

    Anonymous memory, made before the fork; worker 0, which knows the model, sets its size.
    """

    def __init__(self, workers: int) -> None:
        self._workers, self._memory = workers, Memory()

    def allocate(self, row_bytes: int) -> None:
        """Set the size; by worker 0, before anybody calls `map`."""
        self._memory.reserve(self._workers * row_bytes)

    def map(self, row_bytes: int) -> Tensor:
        """All rows, uint8 [workers, row_bytes]; integers are read and written atomically."""
        return self._memory.map()[: self._workers * row_bytes].view(self._workers, row_bytes)

    def publish(self, parts: Sequence[tuple[int, int]]) -> None:
        """No-op: the memory is shared."""

    def fetch(self, parts: Sequence[tuple[int, int, int]]) -> None:
        """No-op: the memory is shared."""

    def close(self) -> None:
        """Close this process's descriptor; mapped rows stay valid."""
        self._memory.close()


def anonymous_file(name: str) -> int:
    """A descriptor of a file that vanishes with the last process that holds it."""
    if hasattr(os, "memfd_create"):  # not in a Python that was built for a glibc before 2.27, as some are that travel
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:  # unlinked: as anonymous, possibly on a disk
        return os.dup(file.fileno())
