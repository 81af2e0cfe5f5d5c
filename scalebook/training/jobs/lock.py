"""One supervisor per workspace: the lock that makes it so, and the note of who holds it."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from scalebook.training.files import locks, records
from scalebook.training.jobs.process import ProcessId, alive, stopped
from scalebook.training.workspace import HIDDEN, Workspace

LOCK: Final = "supervisor.lock"
LOG: Final = "supervisor.log"
LOCKS: Final = Path("/proc/locks")
SILENT_S: Final = 7.0
"""A supervisor that has gone through no turn for so long is named. One takes 0.1 s, and seconds on a slow disk."""


@dataclass(frozen=True)
class Status:
    """`supervisor.json`: who the supervisor is, and how its warm process does."""

    process: ProcessId
    warm: str = "none"
    """none, loading or ready."""
    problem: str = ""
    """Why no job can be started at present, for people."""


class SupervisorLock:
    """An flock on `.scalebook/supervisor.lock`; the kernel releases it when its holder dies."""

    def __init__(self, workspace: Workspace) -> None:
        workspace.create()
        self.workspace = workspace
        self._file: int | None = None

    def acquire(self, patience_s: float = 1.0) -> bool:
        """Patience is for those who only look whether it is held, for a moment, and for a holder who is just dying."""
        handle = locks.opened(self.workspace.hidden / LOCK)
        if not locks.acquired(handle, patience_s):
            os.close(handle)
            return False
        self._file = handle
        self.beat()
        return True

    def beat(self) -> None:
        """Say that its holder goes on: the lock's file is dated by the clock that counts from the machine's start,
        which nobody sets, and which all processes share."""
        now = time.monotonic_ns()
        with suppress(OSError):
            os.utime(self.workspace.hidden / LOCK, ns=(now, now))

    def release(self) -> None:
        assert self._file is not None, "the lock is not held"
        with suppress(OSError):
            _note(self.workspace).unlink()
        os.close(self._file)
        self._file = None

    def note(self, status: Status) -> None:
        """Write the supervisor's note beside the lock; only by the process that holds it."""
        records.save(_note(self.workspace), status)


def held(workspace: Workspace) -> bool:
    """Whether some process holds the lock just now. Those who look share it, and so are not taken for its holder."""
    workspace.create()
    handle = locks.opened(workspace.hidden / LOCK)
    try:
        return locks.is_held(handle)
    finally:
        os.close(handle)


def status(workspace: Workspace) -> Status | None:
    """How the living supervisor does; None where there is none.

    What it says of itself, or, where it could not write that (no room on the disk) or something else lies there, who
    holds the lock.
    """
    status_ = records.peek(_note(workspace), Status)
    if status_ is not None and alive(status_.process):
        return status_
    holder = _holder(workspace)
    return None if holder is None else Status(holder)


def silence(workspace: Workspace) -> str:
    """Why nothing comes of the living supervisor, for people; "" where it goes on, and where there is none."""
    now = status(workspace)
    if now is None:
        return ""
    pid = now.process.pid
    another = f"`kill -KILL {pid}` replaces it; active runs go on"
    if stopped(now.process):
        return f"the supervisor (process {pid}) is suspended: `kill -CONT {pid}` resumes it, {another}"
    try:
        since_s = time.monotonic() - (workspace.hidden / LOCK).stat().st_mtime
    except OSError:
        return ""
    if since_s < SILENT_S:  # also where an earlier version's dates it by the calendar
        return ""
    return f"the supervisor (process {pid}) has not moved for {since_s:.0f} s: {another}; its log is `{HIDDEN}/{LOG}`"


def noted(workspace: Workspace) -> Status | None:
    """What lies in the supervisor's note, whoever wrote it."""
    return records.peek(_note(workspace), Status)


def _note(workspace: Workspace) -> Path:
    return workspace.hidden / "supervisor.json"


def _holder(workspace: Workspace) -> ProcessId | None:
    """Who holds the lock, as the kernel says: `1: FLOCK  ADVISORY  WRITE 11363 fe:00:2147222 0 EOF`."""
    try:
        facts = (workspace.hidden / LOCK).stat()
        lines = LOCKS.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    place = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    for words in map(str.split, lines):
        if words[1:4] == ["FLOCK", "ADVISORY", "WRITE"] and words[5] == place:
            with suppress(psutil.NoSuchProcess):
                return ProcessId.of(int(words[4]))
    return None
