"""The lock of a study's journal. Imports Optuna: only for use inside functions."""

import fcntl
import os

from optuna.storages.journal import JournalFileOpenLock


class KernelLock(JournalFileOpenLock):
    """An flock on the journal itself, which the kernel releases when its holder dies.

    Optuna's own locks are files: one that a killed process leaves behind holds up the next writer for 30 s.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path = path
        self._handle: int | None = None

    def acquire(self) -> bool:
        handle = os.open(self._path, os.O_RDWR)
        fcntl.flock(handle, fcntl.LOCK_EX)
        self._handle = handle
        return True

    def release(self) -> None:
        assert self._handle is not None, "the lock is not held"
        os.close(self._handle)
        self._handle = None
