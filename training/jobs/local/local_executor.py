"""Jobs as processes of this machine: found, ended and cleared away by what the kernel knows of them."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import ClassVar

import psutil

from scalebook.training.jobs.devices import NodeDevices, this_machine
from scalebook.training.jobs.executor import Executor, JobUsage, Level
from scalebook.training.jobs.process import ProcessId, alive, descendants, send, session, writes_to


@dataclass(frozen=True)
class LocalHandle:
    """A job as a process of this machine."""

    process: ProcessId
    leads_session: bool = True
    """False for a job in the foreground: it shares its session with the user's shell, which is not part of the job."""
    executor: str = "local"
    folder: str = field(default="", compare=False)
    """The job's folder, from which the handle was read, whatever the record says; "" if it was not read from a
    folder."""

    @classmethod
    def of_this_process(cls, *, leads_session: bool = True) -> "LocalHandle":
        """The handle of this process."""
        return cls(ProcessId.of(), leads_session)


class LocalExecutor(Executor[LocalHandle]):
    """A job is a process, its session, and those of its descendants that have left the session.

    A handle read from a folder may name any process. It counts only if a process of the job has the folder's log, or
    the record itself, open for writing (`writes_to`): its main process, or, after that has ended, one of its session.
    """

    name: ClassVar[str] = "local"
    WRITTEN: ClassVar = ("log.txt", "process.json")

    def __init__(self) -> None:
        self._family: dict[LocalHandle, list[ProcessId]] = {}
        """Of jobs that were killed here: all their processes but the main one, as they were found then."""
        self._ours: set[tuple[LocalHandle, str]] = set()
        """Handles that have been found to mean a job, each with its folder."""

    def machines(self) -> list[NodeDevices]:
        return [this_machine()]

    def alive(self, handle: LocalHandle) -> bool:
        return alive(handle.process) and self._is_ours(handle)

    def stop(self, handle: LocalHandle, level: Level) -> None:
        if not self._is_ours(handle):
            return
        if level == "terminate":
            send(handle.process, SIGTERM)
            return
        self._family[handle] = remaining = self._left(handle)
        for process in (*remaining, handle.process):
            send(process, SIGKILL)

    def clear(self, handle: LocalHandle) -> bool:
        remaining = self._left(handle)
        for process in remaining:
            send(process, SIGKILL)
        if not remaining:
            self._family.pop(handle, None)
        return not remaining

    def usage(self, handle: LocalHandle) -> JobUsage | None:
        """The resources by `/proc`: memory is the proportional set size (PSS), in which n processes count 1/n of a
        shared page."""
        cpu_s = memory = 0.0
        if not self.alive(handle):
            return None
        for process in (handle.process, *self._left(handle)):
            with suppress(psutil.Error):  # ended meanwhile
                member = psutil.Process(process.pid)
                cpu_s += sum(member.cpu_times()[:4])  # its own, and of its children that have ended
                memory += member.memory_full_info().pss
        return JobUsage(cpu_s, memory / 1e6)

    def processes(self, handle: LocalHandle) -> list[int]:
        if not self.alive(handle):
            return []
        return [process.pid for process in (handle.process, *self._left(handle))]

    def describe(self, handle: LocalHandle) -> str:
        stranger = alive(handle.process) and not self._is_ours(handle)
        return f"pid {handle.process.pid}{', which is not a process of this run' if stranger else ''}"

    def _left(self, handle: LocalHandle) -> list[ProcessId]:
        """What the job consists of besides its main process."""
        if not self._is_ours(handle):
            return []
        family = descendants(handle.process)
        members = session(handle.process) if handle.leads_session else []
        remembered = [process for process in self._family.get(handle, ()) if alive(process)]
        return [process for process in dict.fromkeys([*family, *members, *remembered]) if process != handle.process]

    def _is_ours(self, handle: LocalHandle) -> bool:
        """Whether the handle means a job; once it has, it does for ever: no other process is that one."""
        key = handle, handle.folder
        if handle.folder and key not in self._ours:
            files = [Path(handle.folder) / name for name in self.WRITTEN]
            if not writes_to(handle.process, files):
                members = session(handle.process) if handle.leads_session else []
                if not any(writes_to(member, files) for member in members):
                    return False
            self._ours.add(key)
        return True
