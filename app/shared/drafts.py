"""What was typed and not saved, kept in the workspace's cache: reloading or closing the page loses nothing of it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from scalebook.training.base.files import records
from scalebook.training.base.workspace import Workspace
from scalebook.training.notebook.cells import Cell, Note, Notebook


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


class LeftDraft(NamedTuple, Generic[D]):
    """A draft that was found, and when it was written last, in seconds since the epoch."""

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
    """All of one, the oldest first."""
    paths = workspace.cache.glob(f"{kind.KIND}-{_digest(notebook)}-*.json")
    return sorted((left for path in paths if (left := _left(path, kind))), key=lambda left: left.written_s)


def move(workspace: Workspace, kind: type[Draft], old: str, new: str) -> None:
    """To the new name of their notebook."""
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
    """What the editor said last. `before` is the note as it was when the editor was opened, "" for a new one.

    `above` and `below` are the cells around a new one, as `around_note` calls them: it stays between
    them when others come.
    """

    KIND = "note-draft"
    index: int
    before: str
    text: str
    above: str = ""
    below: str = ""

    @property
    def which(self) -> str:
        """A note is known by its text, wherever it has moved to; a new one by what stands around it."""
        return self.before or f"new {self.above}\n{self.below}"


def around_note(notebook: Notebook, index: int) -> tuple[str, str]:
    """What identifies the cells above and below a note that is begun before cell `index`; "" where there is none."""
    above = _name_of(notebook.cells[index - 1]) if index > 0 else ""
    return above, _name_of(notebook.cells[index]) if index < len(notebook.cells) else ""


def _name_of(cell: Cell) -> str:
    """Its name; of a note, which has none, its text."""
    if isinstance(cell, Note):
        return hashlib.sha256(cell.source.encode()).hexdigest()[:12]
    return f"{type(cell).__name__} {cell.name}"


def notes_at(left: Sequence[LeftDraft[NoteDraft]], notebook: Notebook, index: int) -> list[LeftDraft[NoteDraft]]:
    """Those that are of cell `index`; with the number of cells for the end: of a new note there, or of a note that has
    been changed or deleted meanwhile."""
    count = len(notebook.cells)
    return [note for note in left if min(_place_of(note.draft, notebook), count) == index]


def _place_of(draft: NoteDraft, notebook: Notebook) -> int:
    """The cell that it belongs to, or before which it stands; the number of cells where it has lost its place."""
    if not draft.before:
        return _place_of_new(draft, [_name_of(cell) for cell in notebook.cells])
    sources = [cell.source if isinstance(cell, Note) else None for cell in notebook.cells]
    if draft.index < len(sources) and sources[draft.index] == draft.before:
        return draft.index
    return sources.index(draft.before) if draft.before in sources else len(sources)


def _place_of_new(draft: NoteDraft, cells: Sequence[str]) -> int:
    """Of a new one: behind the cell that was above it, else before the one that was below, else where it was."""
    if draft.above in cells:
        return cells.index(draft.above) + 1
    return cells.index(draft.below) if draft.below in cells else draft.index
