"""A study's journal, in Optuna's format: its file, and what it says. Imports Optuna: only for use inside functions."""

import fcntl
import json
import os
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from typing_extensions import override

from scalebook.training.base import ConfigError


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


class StudyStorage(JournalStorage):
    """Optuna's storage over a `Journal`. A line that Optuna cannot have written, or does not know, is a ConfigError."""

    @override
    def _sync_with_backend(self) -> None:
        replay = self._replay_result
        logs, end = iter(self._backend.read_logs(replay.log_number_read)), object()
        while True:
            number = replay.log_number_read
            try:
                log: Any = next(logs, end)
            except ValueError as error:
                raise self._unreadable(number, error) from error
            if log is end:
                return
            try:
                replay.apply_logs([log])
            except Exception as error:
                if isinstance(log, dict) and log.get("worker_id") == replay.worker_id:
                    raise  # the answer to what this thread has asked for
                replay.log_number_read = number  # who reads again finds it again
                raise self._unreadable(number, error) from error

    def _unreadable(self, number: int, error: Exception) -> ConfigError:
        path, words = getattr(self._backend, "path", ""), f"{type(error).__name__}: {error}"
        return ConfigError(
            "storage", f"the journal {path} cannot be read at line {number + 1} ({words})",
            "Restore the journal from a copy, use the version of Optuna that wrote it, or move it away to start again.",
        )  # fmt: skip
