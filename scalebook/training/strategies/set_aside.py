"""The monitor's parameters, in a file without a name while its workers train: it computes nothing with them.

They are as large as what a worker has, and nobody reads them between the fork and the end. Where they lie stays the
same, tensors notice nothing: the pages of memory become those of a file that has the same bytes (mmap with MAP_FIXED),
which the kernel may leave on the disk. A worker, forked meanwhile, reads its first parameters there.
"""

import ctypes
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import torch
from torch import Tensor, UntypedStorage
from torch.nn.parameter import is_lazy

LEAST: Final = 2**20  # bytes of one storage
WORTH: Final = 64 * 2**20  # bytes of all together
MOST: Final = 4096  # storages, the largest: a process may have 65530 mappings
_PAGE: Final = mmap.PAGESIZE
_FIXED: Final = 0x10  # MAP_FIXED of Linux


class Piece(NamedTuple):
    """Whole pages of memory: their address, their length in bytes, their place in the file."""

    address: int
    size: int
    offset: int


class SetAside:
    """Pages whose content lies in a file until `bring_back`. Nothing may write to them meanwhile.

    The storages are held, so that what is brought back can never meet memory that somebody else was given.
    """

    def __init__(
        self, pieces: Sequence[Piece] = (), storages: Sequence[UntypedStorage] = (), descriptor: int = -1
    ) -> None:
        self._pieces, self._storages, self._descriptor = pieces, storages, descriptor

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> "SetAside":
        """Move the large parameters that lie in CPU memory of this process alone to a file; none where the disk has no
        room."""
        storages = _storages(tensors)
        pieces = _pieces(storages) if sum(storage.nbytes() for storage in storages) >= WORTH else []
        if sum(piece.size for piece in pieces) < WORTH:
            return cls()
        with tempfile.TemporaryFile() as file:
            try:
                os.posix_fallocate(file.fileno(), 0, pieces[-1].offset + pieces[-1].size)
                for piece in pieces:
                    _all_of(piece, os.pwritev, file.fileno())
            except OSError:  # no room: they stay where they are
                return cls()
            for piece in pieces:
                _map(piece, mmap.MAP_PRIVATE, file.fileno())
            return cls(pieces, storages, os.dup(file.fileno()))

    def forget(self) -> None:
        """In a process forked meanwhile, which has other parameters once it has joined: let these be freed then."""
        if self._pieces:
            os.close(self._descriptor)
        self._pieces, self._storages = (), ()

    def bring_back(self) -> None:
        """Load all of it into memory again, at the same addresses. OSError where the file cannot be read."""
        for piece in self._pieces:
            _map(piece, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
            _all_of(piece, os.preadv, self._descriptor)
        if self._pieces:
            os.close(self._descriptor)
        self._pieces, self._storages = (), ()


def _storages(tensors: Iterable[Tensor]) -> list[UntypedStorage]:
    """The large storages on a CPU, each once, the largest first."""
    by_address: dict[int, UntypedStorage] = {}
    for tensor in tensors:
        if type(tensor.data) is not Tensor or is_lazy(tensor):
            continue  # a wrapper of tensors, or without a size yet
        if tensor.device.type == "cpu" and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            if storage.nbytes() >= LEAST:
                by_address[storage.data_ptr()] = storage
    return sorted(by_address.values(), key=lambda storage: storage.nbytes(), reverse=True)[:MOST]


def _pieces(storages: Iterable[UntypedStorage]) -> list[Piece]:
    """The whole pages within the storages, where they are this process's own memory."""
    private, pieces, at = _private(), list[Piece](), 0
    for storage in storages:
        begin = storage.data_ptr()
        first, end = -(-begin // _PAGE) * _PAGE, (begin + storage.nbytes()) // _PAGE * _PAGE
        if any(low <= first and end <= high for low, high in private):
            pieces.append(Piece(first, end - first, at))
            at += end - first
    return pieces


def _private() -> list[tuple[int, int]]:
    """Address ranges [from, to) of memory that belongs to this process alone and to no file."""
    ranges: list[tuple[int, int]] = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions, _, _, inode = line.split()[:5]
        low, high = (int(address, 16) for address in addresses.split("-"))
        if permissions == "rw-p" and inode == "0":
            joins = bool(ranges) and ranges[-1][1] == low
            ranges[-1:] = [(ranges[-1][0], high)] if joins else [*ranges[-1:], (low, high)]
    return ranges


def _all_of(piece: Piece, move: Callable[[int, list[memoryview], int], int], descriptor: int) -> None:
    """Copy all bytes of a piece to or from the file, by `move`, which may copy fewer at a time."""
    content, done = memoryview((ctypes.c_char * piece.size).from_address(piece.address)).cast("B"), 0
    while done < piece.size:
        moved = move(descriptor, [content[done:]], piece.offset + done)
        if not moved:
            raise OSError("the file that parameters were set aside in has ended too early")
        done += moved


def _map(piece: Piece, flags: int, descriptor: int) -> None:
    """Let the pages of a piece be those of the file, or new ones if `descriptor` is -1; OSError if that cannot be."""
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    protection, at = mmap.PROT_READ | mmap.PROT_WRITE, 0 if descriptor < 0 else piece.offset
    if call(piece.address, piece.size, protection, flags | _FIXED, descriptor, at) != piece.address:
        raise OSError(ctypes.get_errno(), "parameters could not be mapped")
