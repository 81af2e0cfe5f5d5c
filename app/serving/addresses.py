"""The addresses of a served workspace: `.scalebook/ui.json`, written by `scalebook ui`, read by the pages."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from scalebook.training.base import ProcessId, Workspace
from scalebook.training.base.files import locks, records

FILE = "ui.json"
LOCK = "ui.lock"


@dataclass(frozen=True)
class Addresses:
    """Addresses without a slash at the end. `mlflow` is None if the store of runs has no server."""

    app: str
    mlflow: str | None
    children: list[ProcessId] = field(default_factory=list)
    """The servers' processes, which the next `scalebook ui` ends if this one was killed."""
    needs_token: bool = False

    def write(self, workspace: Workspace) -> None:
        records.save(workspace.hidden / FILE, self)

    @classmethod
    def read(cls, workspace: Workspace) -> "Addresses | None":
        """The addresses that the last `scalebook ui` wrote; None without them, or if the file holds something else."""
        return records.peek(workspace.hidden / FILE, cls)

    @staticmethod
    def forget(workspace: Workspace) -> None:
        (workspace.hidden / FILE).unlink(missing_ok=True)


def only_one(workspace: Workspace) -> AbstractContextManager[bool]:
    """True for the one process that may serve this workspace, False for all others while that one lives.

    A file lock: the kernel releases it if the owner is killed.
    """
    return locks.only_one(workspace.hidden / LOCK)


def by_same_name(server: str, page: str) -> str:
    """The address `server` with the same host name as the address `page`: 127.0.0.1 and localhost do not share
    cookies."""
    return server.replace("//127.0.0.1:", "//localhost:", 1) if urlsplit(page).hostname == "localhost" else server
