"""The file of a study's journal, in Optuna's format. Imports Optuna: only for use inside functions."""

import fcntl
import json
import os
from typing import Any

from optuna.storages.journal import JournalFileBackend


class Journal(JournalFileBackend):
    """Appends under an flock on the file itself, which the kernel releases when its holder dies.

    Optuna's own locks are files: one that a killed process leaves behind holds up the next writer for 30 s. A line that
    could not be written whole (no room on the disk) is taken back. What is written is safe from a kill at once, and
    from a crash of the machine once `storage.settle` was called: an fsync for each line takes most of an ask's time.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            before = os.fstat(handle).st_size
            try:
                with open(handle, "ab", closefd=False) as file:
                    file.write(text.encode())
            except OSError:
                os.ftruncate(handle, before)
                raise
        finally:
            os.close(handle)
