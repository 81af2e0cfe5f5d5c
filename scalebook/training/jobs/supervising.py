"""The supervisor (`scalebook.training.supervisor`) for those who need one: whether it lives, and starting it."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from scalebook.training.jobs import detached
from scalebook.training.jobs.lock import LOG, held, silence, status
from scalebook.training.jobs.process import ProcessId
from scalebook.training.workspace import Workspace

START_DEADLINE_S = 15.0
KEEP_EVERY_S = 1.0
KEEP_AGAIN_S = 10.0
"""After a supervisor that did not come up."""


def running(workspace: Workspace) -> ProcessId | None:
    """The supervisor of the workspace, if one lives."""
    known = status(workspace)
    return None if known is None else known.process


def ensure(workspace: Workspace, options: Sequence[str] = ()) -> ProcessId:
    """The supervisor of the workspace; starts one, detached from this process and its session, where none is.

    `options` go to its command line. Raises RuntimeError with the end of its log when it does not come up.
    """
    workspace.create()
    if held(workspace) and (supervisor := running(workspace)):
        return supervisor
    log = workspace.hidden / LOG
    with _appending(log) as output:
        process = detached.start(output, "scalebook.training.supervisor", str(workspace.root.resolve()), *options)
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        if (supervisor := running(workspace)) and held(workspace):
            return supervisor
        if process.returncode not in (None, 0):
            break
        time.sleep(0.01)
    last = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]) if log.exists() else ""
    raise RuntimeError(f"the supervisor of {workspace.root} did not start; the end of {log}:\n{last}")


class Keeper:
    """Replaces a supervisor that died, for whoever waits for its work: call `look` often, it looks once a second.

    One that cannot be started is tried again; `problem` says why meanwhile, for people. One that lives and does nothing
    is left alone; `silence` says so, and `news`, once.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self.process, self.problem, self.silence = workspace, running(workspace), "", ""
        self._next, self._told = time.monotonic(), False

    def look(self) -> bool:
        """Whether another one is there than at the last look."""
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
        """That the supervisor has begun to do nothing, or goes on, since this was last asked; else ""."""
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
