"""What was typed and not saved, kept in the workspace's cache: reloading or closing the page loses nothing of it."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from scalebook.training.files import records
from scalebook.training.workspace import Workspace


@dataclass(frozen=True)
class Draft:
    """What a form or an editor said last. Each kind is a class of its own, whose files are called by its KIND."""

    KIND: ClassVar[str]
    notebook: str
    """The stem of its file."""

    @property
    def which(self) -> str:
        """What tells it from the notebook's other drafts of its kind."""
        raise NotImplementedError


@dataclass(frozen=True)
class SavedDraft(Draft):
    """Of an experiment. `cell` is the one it was opened from, "" for a new one."""

    KIND = "draft"
    cell: str
    name: str
    repeats: int
    config: dict[str, Any]
    text: str = ""
    """The config as it was typed as text, where that is no config; `config` is then the last one that was."""

    @property
    def which(self) -> str:
        return self.cell


D = TypeVar("D", bound=Draft)


class Left(NamedTuple, Generic[D]):
    """A draft that was found, and when it was written last, in seconds since the epoch."""

    draft: D
    written_s: float


def save(workspace: Workspace, draft: Draft) -> None:
    workspace.cache.mkdir(parents=True, exist_ok=True)
    records.save(_path(workspace, type(draft), draft.notebook, draft.which), draft)


def load(workspace: Workspace, kind: type[D], notebook: str, which: str) -> Left[D] | None:
    return _left(_path(workspace, kind, notebook, which), kind)


def discard(workspace: Workspace, kind: type[Draft], notebook: str, which: str) -> None:
    _path(workspace, kind, notebook, which).unlink(missing_ok=True)


def of_notebook(workspace: Workspace, kind: type[D], notebook: str) -> list[Left[D]]:
    """All of one, the oldest first."""
    paths = workspace.cache.glob(f"{kind.KIND}-{_digest(notebook)}-*.json")
    return sorted((left for path in paths if (left := _left(path, kind))), key=lambda left: left.written_s)


def move(workspace: Workspace, kind: type[Draft], old: str, new: str) -> None:
    """To the new name of their notebook."""
    for draft, _ in of_notebook(workspace, kind, old):
        save(workspace, replace(draft, notebook=new))
        discard(workspace, kind, old, draft.which)


def _left(path: Path, kind: type[D]) -> Left[D] | None:
    draft = records.peek(path, kind)
    try:
        return None if draft is None else Left(draft, path.stat().st_mtime)
    except FileNotFoundError:  # discarded meanwhile
        return None


def _path(workspace: Workspace, kind: type[Draft], notebook: str, which: str) -> Path:
    return workspace.cache / f"{kind.KIND}-{_digest(notebook)}-{_digest(which)}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
