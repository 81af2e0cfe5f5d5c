"""Where a run comes from: the notebook and the cell that it was started from, and the search that it is a trial of."""

from dataclasses import dataclass
from pathlib import Path

from scalebook.app.shared import notebooks
from scalebook.app.shared.notebooks import NotebookChoice
from scalebook.training.notebook.cells import Note
from scalebook.training.search.folder import SearchFolder
from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunRecord
from scalebook.training.workspace import Workspace


@dataclass(frozen=True)
class RunOrigin:
    """`notebook` is None where it is gone (or never was), `cell` "" where that is; `path` names both as recorded."""

    notebook: NotebookChoice | None
    cell: str
    search: SearchFolder | None
    trial: str
    path: str


def origin(workspace: Workspace, record: RunRecord) -> RunOrigin:
    """Reads the notebook, to see whether the cell is still there."""
    stem, cell = Path(record.notebook or "").stem, record.cell or ""
    choice = notebooks.pick(workspace, stem) if stem else None
    known = False
    if choice is not None:
        stored, _ = notebooks.load(choice)
        cells = stored.notebook.cells if stored else ()
        known = any(cell_.name == cell for cell_ in cells if not isinstance(cell_, Note))
    trial = record.tags.get(names.TAG_TRIAL, "")
    parent = record.tags.get(names.TAG_PARENT, "")
    search = SearchFolder(workspace.studies / parent) if trial and "/" not in parent else None
    if search is not None and not search.name():
        search = None
    path = " › ".join(part for part in (choice.title if choice else stem, cell) if part)
    return RunOrigin(choice, cell if known else "", search, trial, path)
