"""Whether a process is the one that was meant and still lives, and what is left of its session."""

import ctypes
import os
import signal
from contextlib import suppress
from dataclasses import dataclass

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


@dataclass(frozen=True)
class ProcessId:
    """A pid alone may be another process by now; with the start time (unix s) it is one process for ever."""

    pid: int
    create_time: float

    @classmethod
    def of(cls, pid: int | None = None) -> "ProcessId":
        """This process, or the live process `pid`; raises psutil.NoSuchProcess."""
        pid = os.getpid() if pid is None else pid
        return cls(pid, psutil.Process(pid).create_time())


def alive(process: ProcessId) -> bool:
    """Whether it runs; a zombie, which nobody has waited for yet, does not."""
    try:
        found = psutil.Process(process.pid)
        return found.status() != psutil.STATUS_ZOMBIE and abs(found.create_time() - process.create_time) < 2
    except psutil.NoSuchProcess:
        return False


def session(leader: ProcessId) -> list[ProcessId]:
    """The live processes of the session that `leader` made, itself included; also after the leader's death.

    A session's number is its leader's pid. The kernel gives that pid to nobody while the session has members; when it
    has none, a stranger may get it and even lead a session of its own, which is told by its members' age.
    """
    with suppress(psutil.NoSuchProcess):
        if abs(psutil.Process(leader.pid).create_time() - leader.create_time) >= 2:
            return []  # the pid is another process by now
    if leader.create_time < psutil.boot_time() - 2:
        return []
    members = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(pid) == leader.pid and alive(one := ProcessId.of(pid)):
                members.append(one)
    return members


def descendants(process: ProcessId) -> list[ProcessId]:
    """The live children of a live process, and theirs, in whatever session they are."""
    found = []
    with suppress(psutil.NoSuchProcess):
        if alive(process):
            for child in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    found.append(ProcessId(child.pid, child.create_time()))
    return found


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Send a signal to exactly this process, never to a later one with its pid; False when it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def reap() -> dict[int, int]:
    """Wait for every child that has ended, orphans that fell to this process included: pid -> exit code or -signal."""
    found: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        found[pid] = os.waitstatus_to_exitcode(status)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, which should be `parent`, dies; exits if it has already."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(0)


def adopt_orphans() -> None:
    """Have orphans among this process's descendants fall to it, so that it can wait for them: no zombies."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, argument: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
