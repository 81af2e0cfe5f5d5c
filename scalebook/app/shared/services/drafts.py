"""Unfinished experiments, kept in the workspace's cache: reloading or closing the page loses nothing that was typed."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalebook.training.files import records
from scalebook.training.workspace import Workspace


@dataclass(frozen=True)
class SavedDraft:
    """What the form said last. `cell` is the experiment it was opened from, "" for a new one."""

    notebook: str
    cell: str
    name: str
    repeats: int
    config: dict[str, Any]
    text: str = ""
    """The config as it was typed as text, where that is no config; `config` is then the last one that was."""


def _path(workspace: Workspace, notebook: str, cell: str) -> Path:
    digest = hashlib.sha256(f"{notebook}\n{cell}".encode()).hexdigest()[:16]
    return workspace.cache / f"draft-{digest}.json"


def load(workspace: Workspace, notebook: str, cell: str) -> SavedDraft | None:
    return records.peek(_path(workspace, notebook, cell), SavedDraft)


def left_at(workspace: Workspace, notebook: str, cell: str) -> float | None:
    """When it was written last, in seconds since the epoch; None where there is none."""
    return written(_path(workspace, notebook, cell))


def written(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None


def save(workspace: Workspace, draft: SavedDraft) -> None:
    workspace.cache.mkdir(parents=True, exist_ok=True)
    records.save(_path(workspace, draft.notebook, draft.cell), draft)


def discard(workspace: Workspace, notebook: str, cell: str) -> None:
    _path(workspace, notebook, cell).unlink(missing_ok=True)
