"""Processes of this machine: found, ended and cleared away by what the kernel knows of them."""

from contextlib import suppress
from dataclasses import dataclass
from signal import SIGKILL, SIGTERM
from typing import ClassVar

import psutil

from scalebook.training.jobs.devices import Machine, this_machine
from scalebook.training.jobs.executors.executor import Executor, Level, Taken
from scalebook.training.jobs.process import ProcessId, alive, descendants, send, session


@dataclass(frozen=True)
class LocalHandle:
    """A job as a process of this machine."""

    process: ProcessId
    leads_session: bool = True
    """False for a job in the foreground: it shares its session with a person's shell, which is not part of it."""
    executor: str = "local"

    @classmethod
    def own(cls, *, leads_session: bool = True) -> "LocalHandle":
        """Of this process."""
        return cls(ProcessId.of(), leads_session)


class LocalExecutor(Executor[LocalHandle]):
    """A job is a process and its session; what has left the session is known by having been a descendant."""

    name: ClassVar[str] = "local"

    def __init__(self) -> None:
        self._family: dict[LocalHandle, list[ProcessId]] = {}
        """Of jobs that were killed here: all their processes but the main one, as they were found then."""

    def machines(self) -> list[Machine]:
        return [this_machine()]

    def alive(self, handle: LocalHandle) -> bool:
        return alive(handle.process)

    def stop(self, handle: LocalHandle, level: Level) -> None:
        if level == "terminate":
            send(handle.process, SIGTERM)
            return
        self._family[handle] = left = self._left(handle)
        for process in (*left, handle.process):
            send(process, SIGKILL)

    def clear(self, handle: LocalHandle) -> bool:
        left = self._left(handle)
        for process in left:
            send(process, SIGKILL)
        if not left:
            self._family.pop(handle, None)
        return not left

    def taken(self, handle: LocalHandle) -> Taken | None:
        """By `/proc`: of memory the proportional set size (PSS), in which n processes have 1/n of a shared page."""
        cpu_s = memory = 0.0
        if not alive(handle.process):
            return None
        for process in (handle.process, *self._left(handle)):
            with suppress(psutil.Error):  # ended meanwhile
                member = psutil.Process(process.pid)
                cpu_s += sum(member.cpu_times()[:4])  # its own, and of its children that have ended
                memory += member.memory_full_info().pss
        return Taken(cpu_s, memory / 1e6)

    def shown(self, handle: LocalHandle) -> str:
        return f"pid {handle.process.pid}"

    def _left(self, handle: LocalHandle) -> list[ProcessId]:
        """What the job consists of besides its main process."""
        family = descendants(handle.process)
        members = session(handle.process) if handle.leads_session else []
        known = [process for process in self._family.get(handle, ()) if alive(process)]
        return [process for process in dict.fromkeys([*family, *members, *known]) if process != handle.process]
