"""Drafts: unsaved input, stored in the workspace's cache, so that reloading or closing the page loses nothing."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from scalebook.training.base import Workspace
from scalebook.training.base.files import records
from scalebook.training.notebook import Cell, Note, Notebook


@dataclass(frozen=True)
class Draft:
    """The last values of a form or an editor. Each kind is a class; KIND is the prefix of its files."""

    KIND: ClassVar[str]
    notebook: str
    """The stem of the notebook's file."""

    @property
    def which(self) -> str:
        """The key of the draft among the notebook's drafts of its kind."""
        raise NotImplementedError


@dataclass(frozen=True)
class SavedDraft(Draft):
    """The draft of an experiment. `cell` is the one that it was opened from, "" for a new one."""

    KIND = "draft"
    cell: str
    name: str
    repeats: int
    config: dict[str, Any]
    text: str = ""
    """The typed text, if it is not a config; `config` is then the last valid one."""
    before: str = ""
    """The cell as it was written when it was opened, "" for a new one."""

    @property
    def which(self) -> str:
        return self.cell


D = TypeVar("D", bound=Draft)


class LeftDraft(NamedTuple, Generic[D]):
    """A stored draft, and when it was last written, in seconds since the epoch."""

    draft: D
    written_s: float


def save(workspace: Workspace, draft: Draft) -> None:
    workspace.cache.mkdir(parents=True, exist_ok=True)
    records.save(_path(workspace, type(draft), draft.notebook, draft.which), draft)


def load(workspace: Workspace, kind: type[D], notebook: str, which: str) -> LeftDraft[D] | None:
    return _left(_path(workspace, kind, notebook, which), kind)


def discard(workspace: Workspace, kind: type[Draft], notebook: str, which: str) -> None:
    _path(workspace, kind, notebook, which).unlink(missing_ok=True)


def of_notebook(workspace: Workspace, kind: type[D], notebook: str) -> list[LeftDraft[D]]:
    """All drafts of a kind in a notebook, the oldest first."""
    paths = workspace.cache.glob(f"{kind.KIND}-{_digest(notebook)}-*.json")
    return sorted((left for path in paths if (left := _left(path, kind))), key=lambda left: left.written_s)


def move(workspace: Workspace, kind: type[Draft], old: str, new: str) -> None:
    """Move the drafts of a kind to the new name of their notebook."""
    for draft, _ in of_notebook(workspace, kind, old):
        save(workspace, replace(draft, notebook=new))
        discard(workspace, kind, old, draft.which)


def _left(path: Path, kind: type[D]) -> LeftDraft[D] | None:
    draft = records.peek(path, kind)
    try:
        return None if draft is None else LeftDraft(draft, path.stat().st_mtime)
    except FileNotFoundError:  # discarded meanwhile
        return None


def _path(workspace: Workspace, kind: type[Draft], notebook: str, which: str) -> Path:
    return workspace.cache / f"{kind.KIND}-{_digest(notebook)}-{_digest(which)}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class NoteDraft(Draft):
    """The last text of a note's editor. `before` is the note as the editor was opened on it, "" for a new note.

    `above` and `below` identify the cells around a new note, as `around_note` does: the note stays between them when
    cells are added.
    """

    KIND = "note-draft"
    index: int
    before: str
    text: str
    above: str = ""
    below: str = ""

    @property
    def which(self) -> str:
        """A note is identified by its text, wherever it moves; a new note by the cells around it."""
        return self.before or f"new {self.above}\n{self.below}"


def around_note(notebook: Notebook, index: int) -> tuple[str, str]:
    """Identifiers of the cells above and below a new note before cell `index`; "" if there is none."""
    above = _name_of(notebook.cells[index - 1]) if index > 0 else ""
    return above, _name_of(notebook.cells[index]) if index < len(notebook.cells) else ""


def _name_of(cell: Cell) -> str:
    """The cell's identifier: its name; for a note, which has none, a hash of its text."""
    if isinstance(cell, Note):
        return hashlib.sha256(cell.source.encode()).hexdigest()[:12]
    return f"{type(cell).__name__} {cell.name}"


def notes_at(left: Sequence[LeftDraft[NoteDraft]], notebook: Notebook, index: int) -> list[LeftDraft[NoteDraft]]:
    """The drafts that belong to cell `index`. The number of cells stands for the end: drafts of a new note there, and
    of notes that have been changed or deleted meanwhile."""
    count = len(notebook.cells)
    return [note for note in left if min(_place_of(note.draft, notebook), count) == index]


def _place_of(draft: NoteDraft, notebook: Notebook) -> int:
    """The index of the cell that the draft belongs to, or stands before; the number of cells if it has lost its
    place."""
    if not draft.before:
        return _place_of_new(draft, [_name_of(cell) for cell in notebook.cells])
    sources = [cell.source if isinstance(cell, Note) else None for cell in notebook.cells]
    if draft.index < len(sources) and sources[draft.index] == draft.before:
        return draft.index
    return sources.index(draft.before) if draft.before in sources else len(sources)


def _place_of_new(draft: NoteDraft, cells: Sequence[str]) -> int:
    """The index of a new note: after the cell that was above it, else before the one below it, else where it was."""
    if draft.above in cells:
        return cells.index(draft.above) + 1
    return cells.index(draft.below) if draft.below in cells else draft.index
