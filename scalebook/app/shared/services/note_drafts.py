"""Notes that were begun and not saved: which note a draft is of, wherever that has moved to."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from scalebook.app.shared.services.drafts import Draft, Left
from scalebook.training.notebook.cells import Cell, Note, Notebook


@dataclass(frozen=True)
class NoteDraft(Draft):
    """What the editor said last. `before` is the note as it was when the editor was opened, "" for a new one.

    `above` and `below` are the cells around a new one, as `around` calls them: it stays between them when others come.
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


def around(notebook: Notebook, index: int) -> tuple[str, str]:
    """What identifies the cells above and below a note that is begun before cell `index`; "" where there is none."""
    above = _cell(notebook.cells[index - 1]) if index > 0 else ""
    return above, _cell(notebook.cells[index]) if index < len(notebook.cells) else ""


def _cell(cell: Cell) -> str:
    """Its name; of a note, which has none, its text."""
    if isinstance(cell, Note):
        return hashlib.sha256(cell.source.encode()).hexdigest()[:12]
    return f"{type(cell).__name__} {cell.name}"


def belonging(left: Sequence[Left[NoteDraft]], notebook: Notebook, index: int) -> list[Left[NoteDraft]]:
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
