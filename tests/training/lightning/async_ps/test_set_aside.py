"""Memory that lies in a file for a while, and of which tensors notice nothing."""

import multiprocessing
import os
import resource
from mmap import PAGESIZE
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from scalebook.training.lightning.async_ps.async_run import ParameterSpill

MB = 2**20


def resident(tensor: Tensor) -> int:
    """Bytes of a tensor's pages that are in this process's memory: bit 63 of their entries in the page table."""
    first, last = tensor.data_ptr() // PAGESIZE, (tensor.data_ptr() + tensor.nbytes - 1) // PAGESIZE
    with open("/proc/self/pagemap", "rb", buffering=0) as table:
        entries = os.pread(table.fileno(), 8 * (last - first + 1), 8 * first)
    return PAGESIZE * int((torch.frombuffer(bytearray(entries), dtype=torch.int64) < 0).sum())


def large() -> list[Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [Parameter(torch.randn(10_000_019, generator=generator)) for _ in range(2)]  # 40 MB, not whole pages


def test_what_is_set_aside_takes_no_memory_and_comes_back_as_it_was() -> None:
    tensors = large()
    small, alias = Parameter(torch.randn(1000)), tensors[0].detach()[5:25]
    before = [tensor.detach().clone() for tensor in tensors]
    places = [tensor.data_ptr() for tensor in tensors]
    aside = ParameterSpill.of([*tensors, tensors[0], small])
    assert all(resident(tensor) < MB for tensor in tensors)
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))  # who reads it has it
    aside.bring_back()
    assert [tensor.data_ptr() for tensor in tensors] == places
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))
    with torch.no_grad():
        tensors[0].fill_(3.0)
    assert alias.tolist() == [3.0] * 20
    again = ParameterSpill.of(tensors)
    assert resident(tensors[0]) < MB
    again.bring_back()
    aside.bring_back()  # has nothing any more
    assert (float(tensors[0].detach()[-1]), torch.equal(tensors[1], before[1])) == (3.0, True)


def test_a_fork_reads_it_and_writes_for_itself() -> None:
    tensors = large()
    aside = ParameterSpill.of(tensors)
    expected = float(tensors[0].detach().sum())

    def child() -> None:
        with torch.no_grad():
            assert float(tensors[0].sum()) == expected
            tensors[0].fill_(1.0)
            tensors.clear()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    aside.bring_back()
    assert float(tensors[0].detach().sum()) == expected


def test_a_fork_that_forgets_it_has_no_more_of_it_than_it_uses() -> None:
    tensors = large()
    places = [-(-tensor.data_ptr() // PAGESIZE) * PAGESIZE for tensor in tensors]
    aside = ParameterSpill.of(tensors)

    def is_mapped(place: int) -> bool:
        return f"{place:x}-" in Path("/proc/self/maps").read_text()

    def child() -> None:
        assert all(is_mapped(place) for place in places)
        aside.forget()
        del tensors[1]
        assert [is_mapped(place) for place in places] == [True, False]
        assert bool(torch.isfinite(tensors[0]).all())

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    aside.bring_back()


def test_what_others_have_too_or_what_is_small_stays() -> None:
    shared = [Parameter(tensor.detach().share_memory_()) for tensor in large()]  # type: ignore[no-untyped-call]  # torch
    few = [Parameter(torch.randn(MB))]
    lazy = torch.nn.LazyLinear(3).weight
    meta = Parameter(torch.empty(100 * MB, device="meta"))
    for tensors in (shared, few, [lazy, meta]):
        aside = ParameterSpill.of(tensors)
        assert not aside._pieces
        aside.bring_back()


def test_without_room_on_the_disk_it_stays_in_memory() -> None:
    tensors = large()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MB, before[1]))
    try:
        aside = ParameterSpill.of(tensors)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert resident(tensors[0]) >= tensors[0].nbytes
    aside.bring_back()


def test_a_file_that_has_ended_is_an_error() -> None:
    tensors = large()
    aside = ParameterSpill.of(tensors)
    with open(aside._descriptor, "r+b", closefd=False) as file:
        file.truncate(MB)
    with pytest.raises(OSError, match="with the spilled parameters is too short"):
        aside.bring_back()
