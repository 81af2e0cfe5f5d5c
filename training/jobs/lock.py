"""One supervisor per workspace: the lock that makes it so, and the note of who holds it."""

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass

from training.jobs.folder import write_json
from training.jobs.process import ProcessId, alive
from training.workspace import Workspace


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
        deadline = time.monotonic() + patience_s
        handle = os.open(self.workspace.hidden / "supervisor.lock", os.O_RDWR | os.O_CREAT, 0o644)
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(handle)
                    return False
                time.sleep(0.02)
            else:
                self._file = handle
                return True

    def release(self) -> None:
        assert self._file is not None, "the lock is not held"
        (self.workspace.hidden / "supervisor.json").unlink(missing_ok=True)
        os.close(self._file)
        self._file = None

    def note(self, status: Status) -> None:
        """Only the holder may."""
        write_json(self.workspace.hidden / "supervisor.json", asdict(status))


def held(workspace: Workspace) -> bool:
    """Whether some process holds the lock just now."""
    probe = SupervisorLock(workspace)
    if not probe.acquire(patience_s=0.0):
        return True
    assert probe._file is not None
    os.close(probe._file)
    return False


def status(workspace: Workspace) -> Status | None:
    """What the living supervisor says of itself; None where there is none."""
    try:
        raw = json.loads((workspace.hidden / "supervisor.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    found = Status(**{**raw, "process": ProcessId(**raw["process"])})
    return found if alive(found.process) else None
