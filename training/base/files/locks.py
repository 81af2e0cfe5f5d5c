"""File locks (flock(2)), which the kernel releases when their holder dies."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def opened(path: Path) -> int:
    """A descriptor of the lock file at `path`, which is created if it is missing. Closing the descriptor releases the
    lock."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


def acquired(handle: int, patience_s: float = 0.0) -> bool:
    """Lock the open file for this process alone; False if another process still holds it after `patience_s` seconds."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def is_held(handle: int) -> bool:
    """Whether another process holds the open file's lock. Those who ask take a shared lock, so they are not taken for
    its holder."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


@contextmanager
def only_one(path: Path) -> Iterator[bool]:
    """Hold the lock at `path` meanwhile and yield True; yield False if another process holds it."""
    handle = opened(path)
    try:
        yield acquired(handle)
    finally:
        os.close(handle)
