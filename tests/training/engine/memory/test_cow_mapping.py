import gc
import os

import pytest

from scalebook.training.engine.memory.cow_mapping import CowMapping
from scalebook.training.engine.memory.region import Memory


def test_it_leaves_no_open_file() -> None:
    """Else each fit in a process that goes on, such as a notebook's, would leave one."""
    memory = Memory()
    memory.allocate(4096)
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    mapping = CowMapping.of(memory)
    if mapping is None:
        pytest.skip("this system shows no page table")
    assert set(os.listdir("/proc/self/fd")) > before
    del mapping
    assert set(os.listdir("/proc/self/fd")) == before
    memory.close()
