"""Whether a process is the one that was meant, and still lives."""

import os
from dataclasses import dataclass

import psutil


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
