"""The supervisor from outside: whether it lives, starting it, and keeping it.

There is one per workspace, by a lock; a note beside the lock says who holds it. Processes that keep it alive without
jobs have a file each in `.scalebook/owners/`.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import psutil

from scalebook.training.base import HIDDEN, ProcessId, Workspace, processes
from scalebook.training.base.files import BrokenRecord, locks, records

SUPERVISOR: Final = "scalebook.training.supervisor.supervisor_loop"
"""It lies above this package, so it is named and not imported."""
LOCK: Final = "supervisor.lock"
LOG: Final = "supervisor.log"
LOCKS: Final = Path("/proc/locks")
SILENT_S: Final = 7.0
"""After so long without a turn, people are told, s. A turn takes 0.1 s, or seconds on a slow disk."""
START_DEADLINE_S = 15.0
KEEP_EVERY_S = 1.0
KEEP_AGAIN_S = 10.0
"""Wait after a supervisor that did not start, s."""


@dataclass(frozen=True)
class Status:
    """`supervisor.json`: the supervisor's server, and the state of its fork server."""

    process: ProcessId
    warm: str = "none"
    """none, loading or ready."""
    problem: str = ""
    """Why no job can start at present, for people."""


class SupervisorLock:
    """An flock on `.scalebook/supervisor.lock`; the kernel releases it when its holder dies."""

    def __init__(self, workspace: Workspace) -> None:
        workspace.create()
        self.workspace = workspace
        self._file: int | None = None

    def acquire(self, patience_s: float = 1.0) -> bool:
        """Take the lock, waiting up to `patience_s`: others may hold it for a moment to look, or its holder may be
        dying."""
        handle = locks.opened(self.workspace.hidden / LOCK)
        if not locks.acquired(handle, patience_s):
            os.close(handle)
            return False
        self._file = handle
        self.beat()
        return True

    def beat(self) -> None:
        """Mark the holder as active: stamp the lock's file with the time since boot, a clock that nobody sets and all
        processes share."""
        now = time.monotonic_ns()
        with suppress(OSError):
            os.utime(self.workspace.hidden / LOCK, ns=(now, now))

    def release(self) -> None:
        assert self._file is not None, "the supervisor's lock is not held"
        with suppress(OSError):
            _note(self.workspace).unlink()
        os.close(self._file)
        self._file = None

    def write_status(self, status: Status) -> None:
        """Write the supervisor's note beside the lock; only for the lock's holder."""
        records.save(_note(self.workspace), status)


def is_locked(workspace: Workspace) -> bool:
    """Whether some process holds the lock. Those who look take a shared lock, and so are not taken for its holder."""
    workspace.create()
    handle = locks.opened(workspace.hidden / LOCK)
    try:
        return locks.is_held(handle)
    finally:
        os.close(handle)


def status(workspace: Workspace) -> Status | None:
    """The status of the living supervisor; None if there is none.

    It is read from the supervisor's note; if that is missing (a full disk) or not its own, only who holds the lock is
    known.
    """
    status_ = records.peek(_note(workspace), Status)
    if status_ is not None and status_.process.alive():
        return status_
    holder = _holder(workspace)
    return None if holder is None else Status(holder)


def silence(workspace: Workspace) -> str:
    """Why the living supervisor does nothing, for people; "" if it works, or if there is none."""
    now = status(workspace)
    if now is None:
        return ""
    pid = now.process.pid
    another = f"To replace it, use `kill -KILL {pid}`; active runs continue"
    if now.process.stopped():
        return f"the supervisor (process {pid}) is suspended. To resume it, use `kill -CONT {pid}`. {another}"
    try:
        since_s = time.monotonic() - (workspace.hidden / LOCK).stat().st_mtime
    except OSError:
        return ""
    if since_s < SILENT_S:  # also where an earlier version's dates it by the calendar
        return ""
    return (
        f"the supervisor (process {pid}) has done nothing for {since_s:.0f} s. {another}. Its log is `{HIDDEN}/{LOG}`"
    )


def read_status(workspace: Workspace) -> Status | None:
    """The content of the supervisor's note, whoever wrote it."""
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


def running(workspace: Workspace) -> ProcessId | None:
    """The living supervisor of the workspace; None if there is none."""
    supervisor = status(workspace)
    return None if supervisor is None else supervisor.process


def ensure(workspace: Workspace, options: Sequence[str] = ()) -> ProcessId:
    """The supervisor of the workspace; if there is none, start one, detached from this process and its session.

    `options` go to its command line. Raises RuntimeError with the end of its log if it does not start.
    """
    workspace.create()
    if is_locked(workspace) and (supervisor := running(workspace)):
        return supervisor
    log = workspace.hidden / LOG
    with _appending(log) as output:
        process = processes.start_detached(output, SUPERVISOR, str(workspace.root.resolve()), *options)
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        if (supervisor := running(workspace)) and is_locked(workspace):
            return supervisor
        if process.returncode not in (None, 0):
            break
        time.sleep(0.01)
    last = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]) if log.exists() else ""
    raise RuntimeError(f"the supervisor of {workspace.root} did not start; the end of {log}:\n{last}")


class SupervisorKeeper:
    """Replaces a supervisor that has died, for processes that wait for its work: call `has_changed` often, it checks
    once a second.

    If one cannot be started it tries again; `problem` says why meanwhile, for people. A supervisor that lives and does
    nothing is left alone; `silence`, and once `news`, say so.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self.process, self.problem, self.silence = workspace, running(workspace), "", ""
        self._next, self._told = time.monotonic(), False

    def has_changed(self) -> bool:
        """Whether the supervisor is another one than at the last call."""
        if time.monotonic() < self._next:
            return False
        before = self.process
        try:
            self.process, self.problem, pause = ensure(self.workspace), "", KEEP_EVERY_S
        except (RuntimeError, OSError) as error:
            self.problem, pause = str(error), KEEP_AGAIN_S
        self.silence = silence(self.workspace)
        self._next = time.monotonic() + pause
        return self.process != before

    def news(self) -> str:
        """Whether the supervisor has become silent, or active again, since the last call, in words; else ""."""
        if bool(self.silence) == self._told:
            return ""
        self._told = not self._told
        return self.silence or "the supervisor goes on"


def _appending(log: Path) -> IO[bytes]:
    """The end of the log, or nowhere, where a full disk takes no new file."""
    try:
        return log.open("ab")
    except OSError:
        return open(os.devnull, "ab")


def folder(workspace: Workspace) -> Path:
    return workspace.hidden / "owners"


@contextmanager
def hold_supervisor(workspace: Workspace) -> Iterator[None]:
    """Keep the supervisor of the workspace from ending meanwhile. The file of a killed owner does no harm."""
    folder(workspace).mkdir(parents=True, exist_ok=True)
    me = ProcessId.of()
    path = folder(workspace) / f"{me.pid}.json"
    records.save(path, me)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def present(workspace: Workspace) -> bool:
    """Whether any owner lives; removes the files of dead ones, and broken files."""
    any_lives = False
    for path in folder(workspace).glob("[!.]*.json"):
        try:
            owner = records.load(path, ProcessId)
        except BrokenRecord as error:
            if error.newer:
                continue
            owner = None
        if owner is not None and owner.alive():
            any_lives = True
        else:
            with suppress(OSError):  # a folder, or another one was quicker
                path.unlink()
    return any_lives
