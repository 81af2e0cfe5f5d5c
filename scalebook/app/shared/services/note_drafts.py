"""Notes that were begun and not saved, kept in the workspace's cache by notebook and by the note that is edited."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scalebook.app.shared.services.drafts import written
from scalebook.training.files import records
from scalebook.training.notebook.cells import Note, Notebook
from scalebook.training.workspace import Workspace


@dataclass(frozen=True)
class NoteDraft:
    """What the editor said last. `before` is the note as it was when the editor was opened, "" for a new one."""

    notebook: str
    index: int
    before: str
    text: str


@dataclass(frozen=True)
class LeftNote:
    """A draft that was found, and when it was written last, in seconds since the epoch."""

    draft: NoteDraft
    at: float


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _path(workspace: Workspace, notebook: str, index: int, before: str) -> Path:
    # a note is known by its text, wherever it has moved to; a new one by its place
    which = _digest(before) if before else f"new-{index}"
    return workspace.cache / f"note-draft-{_digest(notebook)}-{which}.json"


def save(workspace: Workspace, draft: NoteDraft) -> None:
    workspace.cache.mkdir(parents=True, exist_ok=True)
    records.save(_path(workspace, draft.notebook, draft.index, draft.before), draft)


def load(workspace: Workspace, notebook: str, index: int, before: str) -> LeftNote | None:
    return _left(_path(workspace, notebook, index, before))


def discard(workspace: Workspace, draft: NoteDraft) -> None:
    _path(workspace, draft.notebook, draft.index, draft.before).unlink(missing_ok=True)


def of_notebook(workspace: Workspace, notebook: str) -> list[LeftNote]:
    """All of one notebook, the oldest first."""
    paths = workspace.cache.glob(f"note-draft-{_digest(notebook)}-*.json")
    return sorted((left_note for path in paths if (left_note := _left(path)) is not None), key=lambda note: note.at)


def _left(path: Path) -> LeftNote | None:
    draft, at = records.peek(path, NoteDraft), written(path)
    return LeftNote(draft, at) if draft is not None and at is not None else None


def belonging(left: Sequence[LeftNote], notebook: Notebook, index: int) -> list[LeftNote]:
    """Those that are of cell `index`; with the number of cells for the end: of a new note there, or of a note that has
    been changed or deleted meanwhile."""
    sources = [cell.source if isinstance(cell, Note) else None for cell in notebook.cells]
    if index == len(sources):
        return [note for note in left if _place(note.draft, sources) >= index]
    return [note for note in left if _place(note.draft, sources) == index]


def _place(draft: NoteDraft, sources: Sequence[str | None]) -> int:
    if not draft.before:
        return draft.index
    if draft.index < len(sources) and sources[draft.index] == draft.before:
        return draft.index
    return sources.index(draft.before) if draft.before in sources else len(sources)
