"""The lock of a journal file: the kernel's, which is released when its holder dies."""

import fcntl
import os
import time

from optuna.storages.journal import BaseJournalFileLock

DEADLINE_S = 30.0


class KernelLock(BaseJournalFileLock):
    """An flock beside the journal; TimeoutError after 30 s."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}.lock"
        self._file: int | None = None

    def acquire(self) -> bool:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(handle)
                    raise TimeoutError(f"{self._path} is held by another process") from None
                time.sleep(0.001)
            else:
                self._file = handle
                return True

    def release(self) -> None:
        assert self._file is not None, "the lock is not held"
        os.close(self._file)
        self._file = None
