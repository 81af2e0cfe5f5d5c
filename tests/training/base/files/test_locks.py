"""Locks on files: one holder, and whoever asks is not taken for one."""

import os
import time
from pathlib import Path

from scalebook.training.base.files import locks


def test_one_process_at_a_time_holds_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locks.only_one(path) as first:
        with locks.only_one(path) as second:
            assert (first, second) == (True, False)
        handle = locks.opened(path)
        assert locks.is_held(handle)
        began = time.monotonic()
        assert not locks.acquired(handle, 0.1)
        assert time.monotonic() - began >= 0.1
    assert not locks.is_held(handle)
    assert locks.acquired(handle)
    os.close(handle)


def test_who_only_asks_shares_the_lock(tmp_path: Path) -> None:
    first, second = locks.opened(tmp_path / "lock"), locks.opened(tmp_path / "lock")
    assert not locks.is_held(first)
    assert not locks.is_held(second)
    os.close(first)
    assert locks.acquired(second)
    os.close(second)
