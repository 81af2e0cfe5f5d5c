"""A second executor, as small as one can be: each job a Python of its own, without a process to fork from.

`python -m tests.training.jobs.plain FOLDER WORKSPACE RUNNER CORE...` is a job.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Literal

from scalebook.training.base.processes import Children, ProcessId
from scalebook.training.base.safe_path import environment
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs.devices import NodeDevices, this_machine
from scalebook.training.jobs.executor import CLAIMED_ELSEWHERE, EXECUTORS, Executor, Level, LocalHandle
from scalebook.training.jobs.fork_server import load
from scalebook.training.jobs.job_folder import JobFolder, JobStart
from scalebook.training.jobs.launcher import Event, Launcher, ProcessEnded
from scalebook.training.jobs.leases import Lease

ROOT = Path(__file__).resolve().parents[3]


class PlainExecutor(Executor[LocalHandle]):
    name: ClassVar[str] = "plain"

    def machines(self) -> list[NodeDevices]:
        here = this_machine()
        return [NodeDevices(here.cores, here.gpus, "plainly this one")]

    def alive(self, handle: LocalHandle) -> bool:
        return handle.process.alive()

    def stop(self, handle: LocalHandle, level: Level) -> None:
        if self.alive(handle):
            with suppress(ProcessLookupError):
                if level == "terminate":
                    os.kill(handle.process.pid, signal.SIGTERM)
                else:
                    os.killpg(handle.process.pid, signal.SIGKILL)

    def clear(self, handle: LocalHandle) -> bool:
        if not (left := handle.process.session()):
            return True
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        return False

    def describe(self, handle: LocalHandle) -> str:
        return f"process {handle.process.pid}"


class PlainLauncher(Launcher):
    def __init__(
        self, workspace: Workspace, children: Children, runner: str | None, preload: Sequence[str] | None
    ) -> None:
        assert runner is not None
        self.workspace, self.children, self.runner = workspace, children, runner
        self._pids: dict[str, int] = {}
        self._open = False

    @property
    def state(self) -> Literal["none", "loading", "ready"]:
        return "ready" if self._open else "none"

    def prepare(self, fresh: bool) -> bool:
        self._open = True
        return True

    def start(self, job: JobFolder, lease: Lease) -> bool:
        words = [sys.executable, "-m", "tests.training.jobs.plain"]
        words += [str(job.path), str(self.workspace.root), self.runner, lease.machine, *map(str, lease.cores)]
        told = environment(PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES="")
        output = os.POSIX_SPAWN_OPEN, 1, str(job.log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        nothing = os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0
        actions = [nothing, output, (os.POSIX_SPAWN_DUP2, 1, 2)]
        self._pids[job.id] = os.posix_spawn(words[0], words, told, file_actions=actions, setsid=True)
        return True

    def events(self, wait_s: float) -> list[Event]:
        time.sleep(wait_s)
        self.children.reap()
        codes = {name: self.children.pop_exit_code(pid) for name, pid in self._pids.items()}
        found: list[Event] = [ProcessEnded(name, code) for name, code in codes.items() if code is not None]
        self._pids = {name: pid for name, pid in self._pids.items() if codes[name] is None}
        return found

    def close(self) -> None:
        self._open = False


def main(folder: Path, workspace: str, runner: str, machine: str, cores: list[int]) -> int:
    EXECUTORS[PlainExecutor.name] = PlainExecutor
    run = load(runner)
    os.sched_setaffinity(0, cores)
    os.chdir(workspace)
    handle = LocalHandle(ProcessId.of(), executor=PlainExecutor.name)
    if not JobFolder(folder).claim(JobStart(handle, time.time(), cores, machine=machine)):
        return CLAIMED_ELSEWHERE
    return run(folder)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], [int(word) for word in sys.argv[5:]]))
