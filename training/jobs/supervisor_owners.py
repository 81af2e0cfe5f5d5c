"""Processes that keep the supervisor alive without jobs: a file each in `.scalebook/owners/`."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scalebook.training.base.files import records
from scalebook.training.base.files.records import BrokenRecord
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs.process import ProcessId, alive


def folder(workspace: Workspace) -> Path:
    return workspace.hidden / "owners"


@contextmanager
def hold_supervisor(workspace: Workspace) -> Iterator[None]:
    """Keep the supervisor of the workspace from ending meanwhile. The file of a killed owner does no harm."""
    folder(workspace).mkdir(parents=True, exist_ok=True)
    me = ProcessId.of()
    path = folder(workspace) / f"{me.pid}.json"
    records.save(path, me)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def present(workspace: Workspace) -> bool:
    """Whether any owner lives; removes the files of dead ones, and broken files."""
    any_lives = False
    for path in folder(workspace).glob("[!.]*.json"):
        try:
            owner = records.load(path, ProcessId)
        except BrokenRecord as error:
            if error.newer:
                continue
            owner = None
        if owner is not None and alive(owner):
            any_lives = True
        else:
            with suppress(OSError):  # a folder, or another one was quicker
                path.unlink()
    return any_lives
