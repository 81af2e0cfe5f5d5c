"""The processes below a process, and what they have done; read from /proc, with nothing beyond the standard library."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final, NamedTuple

_EVERY_S: Final = 0.01  # between two looks at processes that are about to be gone


class Done(NamedTuple):
    """What a process has used since it began: CPU time (s), and bytes read and written."""

    cpu_s: float
    moved_bytes: int


NOTHING: Final = Done(0.0, 0)

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


def descendants(pid: int, children_only: bool = False) -> list[int]:
    """Process ids of all below `pid`, each after its parent; zombies too, as they are not waited for yet."""
    below: dict[int, list[int]] = {}
    for folder in os.listdir("/proc"):
        if folder.isdigit() and (fields := _stat(int(folder))):
            below.setdefault(int(fields[1]), []).append(int(folder))
    pids = below.get(pid, [])[:]
    if not children_only:
        for child in pids:
            pids += below.get(child, [])
    return pids


def done(pid: int) -> Done:
    """What one process has done, without those below it; zeros where it has ended or belongs to somebody else."""
    if not (fields := _stat(pid)):
        return NOTHING
    cpu_s = (int(fields[11]) + int(fields[12])) * _TICK_S
    try:
        counts = dict(line.split(b": ") for line in Path(f"/proc/{pid}/io").read_bytes().splitlines())
    except OSError:
        return Done(cpu_s, 0)
    return Done(cpu_s, int(counts[b"rchar"]) + int(counts[b"wchar"]))


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    return (fields := _stat(pid)) != [] and fields[0] not in (b"Z", b"X")


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat behind the name, beginning with the state (proc(5): field 3); none if the process
    has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def kill_and_wait(pids: Iterable[int], timeout_s: float) -> None:
    """SIGKILL to children of this process, or to what is below them; return when all are gone, or after `timeout_s`."""
    pids = list(pids)
    for pid in pids:
        with suppress(ProcessLookupError):  # it ended by itself
            os.kill(pid, signal.SIGKILL)
    until = monotonic() + timeout_s
    while pids and monotonic() < until:
        pids = [pid for pid in pids if not _gone(pid)]
        if pids:
            sleep(_EVERY_S)


def _gone(pid: int) -> bool:
    with suppress(ChildProcessError):  # not ours to wait for
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return not is_running(pid)
