"""The supervisor: one small process per workspace that starts jobs in order, watches them, and closes what dies.

It outlives the browser and the Streamlit server, imports neither torch nor MLflow, and holds no state that it could not
find again in the job folders: killed, it is replaced by the next `ensure`, which adopts what runs.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

from scalebook.training.files.output import forgive
from scalebook.training.files.records import Broken
from scalebook.training.jobs.devices import inventory
from scalebook.training.jobs.folder import JobFolder
from scalebook.training.jobs.lock import SupervisorLock, held, status
from scalebook.training.jobs.process import ProcessId, adopt_orphans
from scalebook.training.safe_path import HOME, environment, python
from scalebook.training.supervisor.search_drivers import any_open
from scalebook.training.supervisor.turns import Turns
from scalebook.training.supervisor.warming import PRELOAD, RUNNER
from scalebook.training.supervisor.watch import Limits
from scalebook.training.trust import JOB, may_run
from scalebook.training.workspace import OWNER_ONLY, Workspace

START_DEADLINE_S = 15.0
KEEP_EVERY_S = 1.0
KEEP_AGAIN_S = 10.0
"""After a supervisor that did not come up."""


def running(workspace: Workspace) -> ProcessId | None:
    """The supervisor of the workspace, if one lives."""
    found = status(workspace)
    return None if found is None else found.process


def ensure(workspace: Workspace, options: Sequence[str] = ()) -> ProcessId:
    """The supervisor of the workspace; starts one, detached from this process and its session, where none is.

    `options` go to its command line. Raises RuntimeError with the end of its log when it does not come up.
    """
    workspace.create()
    if held(workspace) and (found := running(workspace)):
        return found
    log = workspace.hidden / "supervisor.log"
    with _appending(log) as output:
        process = subprocess.Popen(
            python("-m", "scalebook.training.jobs.supervising", str(workspace.root.resolve()), *options),
            cwd=HOME,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # whoever started it must wait for it when it ends, or it would stay a zombie
    threading.Thread(target=process.wait, name="wait-for-supervisor", daemon=True).start()
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        if (found := running(workspace)) and held(workspace):
            return found
        if process.returncode not in (None, 0):
            break
        time.sleep(0.01)
    last = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]) if log.exists() else ""
    raise RuntimeError(f"the supervisor of {workspace.root} did not start; the end of {log}:\n{last}")


class Keeper:
    """Replaces a supervisor that died, for whoever waits for its work: call `look` often, it looks once a second.

    One that cannot be started is tried again; `problem` says why meanwhile, for people.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self.process, self.problem = workspace, running(workspace), ""
        self._next = time.monotonic() + KEEP_EVERY_S

    def look(self) -> bool:
        """Whether another one is there than at the last look."""
        if time.monotonic() < self._next:
            return False
        before = self.process
        try:
            self.process, self.problem, pause = ensure(self.workspace), "", KEEP_EVERY_S
        except (RuntimeError, OSError) as error:
            self.problem, pause = str(error), KEEP_AGAIN_S
        self._next = time.monotonic() + pause
        return self.process != before


def _appending(log: Path) -> IO[bytes]:
    """The end of the log, or nowhere, where a full disk takes no new file."""
    try:
        return log.open("ab")
    except OSError:
        return open(os.devnull, "ab")


def supervise(workspace: Workspace, limits: Limits, runner: str = RUNNER, preload: tuple[str, ...] = PRELOAD) -> int:
    """Be the supervisor until there is nothing to do, or a SIGTERM or SIGINT; jobs go on. 1 when another one is."""
    lock = SupervisorLock(workspace)
    leaving = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.set())
    adopt_orphans()
    os.chdir(HOME)  # nothing that this starts begins in a folder of notebooks
    while True:
        if not lock.acquire():
            return 1
        turns = Turns(lock, limits, inventory(), runner, preload)
        try:
            while not leaving.is_set() and not turns.idle():
                turns.turn()
        finally:
            turns.close()
            lock.release()
        # a job or search that came after the last look found the lock still held, and relies on this
        if leaving.is_set() or not (_any_waiting(workspace) or any_open(workspace)):
            return 0


def _any_waiting(workspace: Workspace) -> bool:
    return any(_waits(JobFolder(path)) and may_run(workspace, path, JOB) for path in workspace.jobs.glob("[!.]*"))


def _waits(job: JobFolder) -> bool:
    try:
        job.request()
    except (OSError, Broken):
        return False
    return job.state() == "waiting"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scalebook.training.jobs.supervising")
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--runner", default=RUNNER, help="module:function that runs one job folder")
    parser.add_argument("--preload", default=",".join(PRELOAD), help="what the warm process imports, commas between")
    for limit in fields(Limits):
        parser.add_argument(f"--{limit.name.replace('_', '-')}", type=float, default=limit.default)
    told: Any = parser.parse_args(argv)
    os.umask(OWNER_ONLY)  # its jobs inherit it
    forgive()
    limits = Limits(**{limit.name: getattr(told, limit.name) for limit in fields(Limits)})
    workspace = Workspace(told.workspace.resolve())
    supervise(workspace, limits, told.runner, tuple(filter(None, told.preload.split(","))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
