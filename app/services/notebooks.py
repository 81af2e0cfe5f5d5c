"""Notebooks of a workspace, and the edits that the page makes. Every edit starts from what the person saw."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from training.notebook import edit, store
from training.notebook.cells import Cell, ExperimentCell, Notebook
from training.notebook.store import Stored
from training.spec.errors import ConfigError
from training.workspace import Workspace


@dataclass(frozen=True)
class Choice:
    """A notebook in the picker. `name` is the file's stem and stands in the address."""

    name: str
    title: str
    path: Path


def choices(workspace: Workspace) -> list[Choice]:
    """All notebooks of the workspace, by name."""
    return [Choice(path.stem, _title(path, path.stat().st_mtime_ns), path) for path in workspace.notebooks()]


@lru_cache(maxsize=1000)
def _title(path: Path, _changed: int) -> str:
    """What the notebook calls itself; its name where it cannot be read, so that it can still be picked."""
    try:
        return store.read(path).notebook.title
    except ConfigError:
        return path.stem


def pick(workspace: Workspace, name: str | None) -> Choice | None:
    """The notebook called `name`; without a name the first one. None where there is none of that name."""
    found = choices(workspace)
    if name is None:
        return next((one for one in found if one.name == "first-steps"), found[0] if found else None)
    return next((one for one in found if one.name == name), None)


def key(cell: Cell, index: int) -> str:
    """What identifies a cell between two drawings: its name, or for notes the place and the text."""
    name = getattr(cell, "name", "")
    return f"{type(cell).__name__.lower()}-{name or f'{index}-{abs(hash(cell.source)) % 10**8}'}"


def place_of(notebook: Notebook, name: str) -> int:
    """The index of the experiment `name`; ConfigError where it is gone."""
    for index, cell in enumerate(notebook.cells):
        if isinstance(cell, ExperimentCell) and cell.name == name:
            return index
    raise ConfigError(name, "is not in the notebook any more", "Reload the page.")


def put_experiment(
    notebook: Notebook, name: str, config: dict[str, object], repeats: int, replaces: str = ""
) -> Notebook:
    """Write the experiment; `replaces` is the name under which it was opened, "" for a new one.

    A renamed cell stays in its place. Raises ConfigError where the name belongs to another cell.
    """
    if name != replaces and notebook.experiment(name) is not None:
        raise ConfigError("name", f"{name} is taken by another experiment of this notebook", "Choose another name.")
    if replaces and name != replaces and notebook.experiment(replaces) is not None:
        notebook = edit.rename(notebook, replaces, name)  # also in the comparisons that name it
    return edit.put_experiment(notebook, name, dict(config), repeats)


def duplicate(notebook: Notebook, name: str) -> tuple[Notebook, str]:
    """A copy right below, with a free name; returns that too."""
    index = place_of(notebook, name)
    cell = notebook.cells[index]
    assert isinstance(cell, ExperimentCell)
    free = edit.unique_name(notebook, name)
    return edit.put_experiment(notebook, free, cell.config, cell.repeats, at=index + 1), free


def move(notebook: Notebook, index: int, by: int) -> Notebook:
    """One cell up (-1) or down (+1); unchanged at the border."""
    to = index + by
    return edit.move(notebook, index, to) if 0 <= to < len(notebook.cells) else notebook


def difference(mine: str, theirs: str) -> str:
    """A unified diff from the file as it is now to what would be written."""
    lines = difflib.unified_diff(
        theirs.splitlines(keepends=True), mine.splitlines(keepends=True), "in the file now", "yours", n=2
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def save_beside(stored: Stored, notebook: Notebook) -> Path:
    """Write `notebook` to a new file next to the original (`NAME-2.md`), which stays as it is."""
    number = 2
    while True:
        path = stored.path.with_name(f"{stored.path.stem}-{number}.md")
        try:
            with path.open("x", encoding="utf-8", newline="") as file:
                file.write(notebook.text)
        except FileExistsError:
            number += 1
        else:
            return path


def overwrite(theirs: Stored, mine: Notebook) -> Stored:
    """Write `mine` over what is in the file now, after a person has seen both."""
    return store.save(theirs, mine)


def stamps(workspace: Workspace, path: Path | None) -> Sequence[object]:
    """Changes when the notebook's file does, or when runs or searches come or go: reason enough to look again."""
    found: list[object] = []
    for one in (workspace.jobs, workspace.studies, path):
        try:
            found.append(one.stat().st_mtime_ns if one else 0)
        except FileNotFoundError:
            found.append(0)
    return found
