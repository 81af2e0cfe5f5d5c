"""Copy-on-write views of versions for a worker's parameters: writes into them stay in this process.

The run's memory is mapped a second time, privately. Pages that this process has not written to are the shared ones; a
write makes the kernel copy the page. So a published version stays as it was, whatever a model, a callback or an
optimizer's owner does to the parameters, and the page table says which pages were written to (8 bytes for 4 KiB). Such
a write is a page fault of this process: without a fault since the last check there is nothing to check.
"""

import mmap
import os
from resource import RUSAGE_SELF, getrusage
from typing import Final, Self

import torch
from torch import Tensor

from scalebook.training.engine.memory.layout import Layout
from scalebook.training.engine.memory.shared_memory import Memory, discard

_PAGE: Final = mmap.PAGESIZE
_ENTRY: Final = 8  # bytes of /proc/self/pagemap for one page; bit 63: present, 62: swapped out, 61: still the file's
_OWN: Final = torch.tensor([4, 2, 6])  # these three bits of a page that has become this process's own


class CowMapping:
    """A private mapping of a run's memory, for one worker, or for all workers of one process, which write in turn."""

    def __init__(self, memory: Memory) -> None:
        self._mapping = memory.map_privately()
        self._whole = torch.frombuffer(self._mapping, dtype=torch.uint8)
        self._address = self._whole.data_ptr()
        self._table = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        self._views: dict[tuple[int, int], list[Tensor]] = {}  # by where a version begins, and its bytes
        self._versions: dict[range, list[list[Tensor]]] = {}
        self._clean: dict[int, bytes] = {}  # by where a version begins: its entries when nothing was written
        self._faults: dict[int, int] = {}  # by the same: page faults of this process, when last nothing was written
        self._open: dict[int, Layout] = {}  # by the same: what may have been written to since all of them were clean
        self._all_clean = -1  # page faults at that time

    @classmethod
    def of(cls, memory: Memory) -> Self | None:
        """A mapping of `memory`; None if the system cannot tell which pages were written to. Versions are then lent
        shared."""
        if not os.access("/proc/self/pagemap", os.R_OK):
            return None
        return cls(memory)

    def views(self, layout: Layout, start: int) -> list[Tensor]:
        """The tensors of `layout`, for a version that begins at byte `start`; the same tensors at each call.

        Each has a storage of its own, so that `torch.save` writes no more than the tensor.
        """
        key = start, layout.nbytes
        if key not in self._views:
            self._views[key] = [self._view(f.dtype, f.shape, f.stride, start + f.offset) for f in layout.fields]
        return self._views[key]

    def versions(self, layout: Layout, starts: range) -> list[list[Tensor]]:
        """`views` of the versions that begin there; the same list at each call."""
        if starts not in self._versions:
            self._versions[starts] = [self.views(layout, start) for start in starts]
        return self._versions[starts]

    def written(self, layout: Layout, version_at: int) -> list[int]:
        """Indices of the fields, of the version at byte `version_at`, that lie on a page that was written to.

        A page may hold several fields, so not all of them need have changed.
        """
        faults = getrusage(RUSAGE_SELF).ru_minflt
        if version_at not in self._open:
            return self._changed(layout, version_at, faults)
        if faults == self._all_clean:
            return []
        others = [(other, offset) for offset, other in self._open.items() if offset != version_at]
        changed = self._changed(layout, version_at, faults)
        if not changed and not any(self._changed(other, offset, faults) for other, offset in others):
            self._all_clean, self._open = faults, {version_at: layout}
        return changed

    def open(self, layout: Layout, version_at: int) -> None:
        """For the simulator: from now on user code may write into this version. Without a page fault no version needs
        checking, however long ago it was lent."""
        self._open[version_at] = layout

    def _changed(self, layout: Layout, version_at: int, faults: int) -> list[int]:
        """`written`, by the page table if there were page faults since this version was checked."""
        if not layout.nbytes or faults == self._faults.get(version_at):
            return []
        first_page, last = version_at // _PAGE, (version_at + max(layout.nbytes, 1) - 1) // _PAGE
        entries = os.pread(
            self._table, (last - first_page + 1) * _ENTRY, (self._address // _PAGE + first_page) * _ENTRY
        )
        if entries == self._clean.get(version_at):
            self._faults[version_at] = faults
            return []
        kinds = (torch.frombuffer(bytearray(entries), dtype=torch.int64) >> 61) & 7
        own = torch.isin(kinds, _OWN)
        if not bool(own.any()):
            self._clean[version_at], self._faults[version_at] = entries, faults
            return []
        changed_before = torch.cat([torch.zeros(1, dtype=torch.int64), own.cumsum(0)]).tolist()
        indices = []
        for index, field in enumerate(layout.fields):
            start = version_at + field.offset
            if (
                changed_before[(start + field.nbytes - 1) // _PAGE - first_page + 1]
                > changed_before[start // _PAGE - first_page]
                and field.nbytes
            ):
                indices.append(index)
        return indices

    def drop(self, layout: Layout, version_at: int) -> None:
        """Discard what was written into the version at byte `version_at`: its pages are the shared ones again."""
        if not layout.nbytes:
            return
        start = version_at // _PAGE * _PAGE
        end = min(-(-(version_at + layout.nbytes) // _PAGE) * _PAGE, len(self._mapping))
        if end > start:
            discard(self._mapping[start:end])
        self._clean.pop(version_at, None)
        self._faults.pop(version_at, None)

    def close(self) -> None:
        """Close the page table; tensors from `views` stay valid."""
        if self._table >= 0:
            os.close(self._table)
            self._table = -1

    def _view(self, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Tensor:
        count = torch.Size(shape).numel()
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._mapping, dtype=dtype, count=count, offset=offset).as_strided(shape, stride)
