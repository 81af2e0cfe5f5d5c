"""Notes that were begun and not saved, kept in the workspace's cache by notebook and by the note that is edited."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scalebook.app.shared.services.drafts import written
from scalebook.training.files import records
from scalebook.training.notebook.cells import Cell, Note, Notebook
from scalebook.training.workspace import Workspace


@dataclass(frozen=True)
class NoteDraft:
    """What the editor said last. `before` is the note as it was when the editor was opened, "" for a new one.

    `above` and `below` are the cells around a new one, as `around` calls them: it stays between them when others come.
    """

    notebook: str
    index: int
    before: str
    text: str
    above: str = ""
    below: str = ""


@dataclass(frozen=True)
class LeftNote:
    """A draft that was found, and when it was written last, in seconds since the epoch."""

    draft: NoteDraft
    written_s: float


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def around(notebook: Notebook, index: int) -> tuple[str, str]:
    """What identifies the cells above and below a note that is begun before cell `index`; "" where there is none."""
    above = _cell(notebook.cells[index - 1]) if index > 0 else ""
    return above, _cell(notebook.cells[index]) if index < len(notebook.cells) else ""


def _cell(cell: Cell) -> str:
    """Its name; of a note, which has none, its text."""
    return _digest(cell.source) if isinstance(cell, Note) else f"{type(cell).__name__} {cell.name}"


def _path(workspace: Workspace, draft: NoteDraft) -> Path:
    # a note is known by its text, wherever it has moved to; a new one by what stands around it
    which = _digest(draft.before) if draft.before else f"new-{_digest(f'{draft.above}{chr(10)}{draft.below}')}"
    return workspace.cache / f"note-draft-{_digest(draft.notebook)}-{which}.json"


def save(workspace: Workspace, draft: NoteDraft) -> None:
    workspace.cache.mkdir(parents=True, exist_ok=True)
    records.save(_path(workspace, draft), draft)


def load(workspace: Workspace, same: NoteDraft) -> LeftNote | None:
    """What was left of the note that `same` is a draft of, whatever text that has."""
    return _left(_path(workspace, same))


def discard(workspace: Workspace, draft: NoteDraft) -> None:
    _path(workspace, draft).unlink(missing_ok=True)


def of_notebook(workspace: Workspace, notebook: str) -> list[LeftNote]:
    """The note drafts of one notebook, the oldest first."""
    paths = workspace.cache.glob(f"note-draft-{_digest(notebook)}-*.json")
    return sorted(
        (left_note for path in paths if (left_note := _left(path)) is not None), key=lambda note: note.written_s
    )


def _left(path: Path) -> LeftNote | None:
    draft, at = records.peek(path, NoteDraft), written(path)
    return LeftNote(draft, at) if draft is not None and at is not None else None


def belonging(left: Sequence[LeftNote], notebook: Notebook, index: int) -> list[LeftNote]:
    """Those that are of cell `index`; with the number of cells for the end: of a new note there, or of a note that has
    been changed or deleted meanwhile."""
    count = len(notebook.cells)
    return [note for note in left if min(_place(note.draft, notebook), count) == index]


def _place(draft: NoteDraft, notebook: Notebook) -> int:
    """The cell that it belongs to, or before which it stands; the number of cells where it has lost its place."""
    if not draft.before:
        return _between(draft, [_cell(cell) for cell in notebook.cells])
    sources = [cell.source if isinstance(cell, Note) else None for cell in notebook.cells]
    if draft.index < len(sources) and sources[draft.index] == draft.before:
        return draft.index
    return sources.index(draft.before) if draft.before in sources else len(sources)


def _between(draft: NoteDraft, cells: Sequence[str]) -> int:
    """Of a new one: behind the cell that was above it, else before the one that was below, else where it was."""
    if draft.above in cells:
        return cells.index(draft.above) + 1
    return cells.index(draft.below) if draft.below in cells else draft.index
