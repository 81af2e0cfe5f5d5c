"""Who serves a workspace, and where: `.scalebook/ui.json`, written by `scalebook ui`, read by the pages."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from scalebook.training.files import records
from scalebook.training.jobs.process import ProcessId
from scalebook.training.workspace import Workspace

FILE = "ui.json"
LOCK = "ui.lock"


@dataclass(frozen=True)
class Addresses:
    """Addresses without a slash at the end. `mlflow` is None where runs go to a store without a server."""

    app: str
    mlflow: str | None
    children: list[ProcessId] = field(default_factory=list)
    """The servers' processes, for whoever must clear up after an owner that was killed."""
    needs_token: bool = False

    def write(self, workspace: Workspace) -> None:
        records.save(workspace.hidden / FILE, self)

    @classmethod
    def read(cls, workspace: Workspace) -> "Addresses | None":
        """What the last `scalebook ui` wrote; None where it wrote nothing, or something else lies there."""
        return records.peek(workspace.hidden / FILE, cls)

    @staticmethod
    def forget(workspace: Workspace) -> None:
        (workspace.hidden / FILE).unlink(missing_ok=True)


@contextmanager
def only_one(workspace: Workspace) -> Iterator[bool]:
    """True for the one process that may serve this workspace, False for all others as long as that one lives.

    A file lock: the kernel takes it back from an owner that was killed.
    """
    file = os.open(workspace.hidden / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)
