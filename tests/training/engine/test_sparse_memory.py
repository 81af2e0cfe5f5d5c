"""A large table lies in memory once."""

import mmap
import os
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import SGD

from scalebook.training.engine import Settings, SharedRun, join
from scalebook.training.engine.memory.shared_memory import Memory
from tests.training.engine.forking import run_workers
from tests.training.engine.towers import DEADLINE_S

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own optimizers make such tensors


def test_a_large_table_lies_in_memory_once() -> None:
    """1 GiB, two workers, from before they join to the end. What the model's own first parameters take is left out:
    they are zeros that no page is taken for."""
    rows, width = 2**24, 16
    run = SharedRun(2, Settings())

    def process(number: int) -> tuple[int, int, int]:
        untouched = mmap.mmap(-1, 4 * rows * width, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        zeros = torch.frombuffer(untouched, dtype=torch.float32).view(rows, width)
        table = nn.Embedding(rows, width, sparse=True, _weight=zeros)
        before, own = resident("VmRSS"), resident("RssAnon")
        Path("/proc/self/clear_refs").write_text("5")  # what was the most so far
        joined = join(run, run.member(number, DEADLINE_S), [SGD(table.parameters(), lr=1.0)], model=table)
        joined.start()
        most = resident("VmHWM") - before
        joined.begin()
        draw, grown = torch.Generator().manual_seed(number), 0
        for _ in range(50):
            table.weight.grad = None
            (1 - table(torch.randint(0, rows, (256,), generator=draw))).square().sum().backward()
            grown = max(grown, resident("RssAnon") - own)
            joined.clients[0].push()
        joined.finish()
        joined.wait_for_others()
        shared = resident_of_file(run.memory) + resident_of_file(run.row_memory)
        joined.detach()
        return most, grown, shared

    (first, grown, shared), (second, other_grown, _) = run_workers(2, process)
    assert run.counts().updates == 100
    assert 2**30 <= first + second <= 1.2 * 2**30
    assert 2**30 <= grown + other_grown + shared <= 1.2 * 2**30


def resident_of_file(memory: Memory) -> int:
    """Bytes that are taken of it, by whichever processes."""
    return 512 * os.fstat(memory._descriptor).st_blocks


def resident(key: str) -> int:
    """Bytes, of this process."""
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(key))
    return 1024 * int(line.split()[1])
