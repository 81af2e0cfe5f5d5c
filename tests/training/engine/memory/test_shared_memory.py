import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from scalebook.training.engine.memory import shared_memory
from scalebook.training.engine.memory.shared_memory import Memory, address_of, anonymous_file, discard

SIZE = (6 << 20) + 4096
"""Three huge pages and a small one."""


@pytest.fixture
def memory() -> Iterator[Memory]:
    made = Memory()
    made.allocate(SIZE)
    yield made
    made.close()


@pytest.mark.parametrize("old_glibc", [False, True])
def test_an_anonymous_file_has_no_name_and_is_empty(old_glibc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a Python that was built without `os.memfd_create`."""
    if old_glibc:
        monkeypatch.delattr(os, "memfd_create")
    descriptor = anonymous_file("things")
    try:
        assert os.pwrite(descriptor, b"abc", 5) == 3
        assert os.pread(descriptor, 100, 0) == bytes(5) + b"abc"
        assert os.fstat(descriptor).st_nlink == 0
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("huge", [0, 2 << 20], ids=["small pages", "huge pages"])
def test_all_mappings_see_one_memory_and_private_writes_stay_private(
    huge: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "_huge_page", lambda: huge)
    memory = Memory()
    memory.allocate(SIZE)
    one, other, private = memory.map(), memory.map(), memory.map_privately()
    mine = torch.frombuffer(private, dtype=torch.uint8)
    assert one.numel() == SIZE
    assert not one.any()
    one[::4096] = 7
    assert torch.equal(one, other)
    assert torch.equal(one, mine)
    mine[5000:9000] = 1
    assert not one[5000:8000].any(), "a private write does not show elsewhere"
    other[20000] = 3
    assert mine[20000] == 3, "pages that were not written to are the shared ones"
    discard(private[4096:12288])
    assert torch.equal(one, mine)
    memory.close()
    assert one[4096] == 7, "the memory outlives its descriptor"


def test_the_memory_consists_of_huge_pages(memory: Memory) -> None:
    shared, private = memory.map(), memory.map_privately()
    assert shared.sum() + sum(private[:: mmap.PAGESIZE]) == 0  # all pages are mapped
    if not _kernel_has_huge_pages():
        pytest.skip("this kernel gives no huge pages to a process that asks for them")
    for address in (shared.data_ptr(), address_of(private)):
        assert _mapped_huge(address) == 6 << 20


def test_memory_without_promised_addresses_is_mapped_anyway(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that never overcommits (vm.overcommit_memory=2) may have no addresses left to choose from."""

    class Strict:
        def __init__(self) -> None:
            self.mmap = mmap.mmap

        def __call__(self, descriptor: int, *args: int, **kwargs: int) -> mmap.mmap:
            if descriptor == -1:
                raise OSError(12, "Cannot allocate memory")
            return self.mmap(descriptor, *args, **kwargs)

    monkeypatch.setattr(mmap, "mmap", Strict())
    memory.map()[-1] = 5
    assert memory.map()[-1] == 5


def _kernel_has_huge_pages() -> bool:
    """Whether it has some left, for a process that asks with MADV_COLLAPSE."""
    memory = Memory()
    try:
        memory.allocate(2 << 20)
        mapped = memory.map()
        return bool(mapped.sum() == 0) and _mapped_huge(mapped.data_ptr()) > 0
    finally:
        memory.close()


def _mapped_huge(address: int) -> int:
    """Bytes of the mapping at this address that this process maps as huge pages."""
    maps = Path("/proc/self/smaps").read_text()
    at = maps.index(f"{address:x}-")
    found = re.search(r"ShmemPmdMapped: +(\d+) kB", maps[at:])
    assert found is not None
    return 1024 * int(found[1])
