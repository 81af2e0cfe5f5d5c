"""Those who want the supervisor to stay although no job is there: a file each in `.scalebook/owners/`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from training.jobs.folder import write_json
from training.jobs.process import ProcessId, alive
from training.workspace import Workspace


def folder(workspace: Workspace) -> Path:
    return workspace.hidden / "owners"


@contextmanager
def hold(workspace: Workspace) -> Iterator[None]:
    """While inside, the supervisor of the workspace does not go home. A killed owner's file does no harm."""
    folder(workspace).mkdir(parents=True, exist_ok=True)
    me = ProcessId.of()
    path = folder(workspace) / f"{me.pid}.json"
    write_json(path, asdict(me))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def present(workspace: Workspace) -> bool:
    """Whether any owner lives; files of dead ones are removed."""
    found = False
    for path in folder(workspace).glob("[!.]*.json"):
        try:
            owner = ProcessId(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            continue
        if alive(owner):
            found = True
        else:
            path.unlink(missing_ok=True)
    return found
