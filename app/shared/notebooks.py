"""The notebooks of a workspace, and the pages' edits of them. Every edit starts from the state that the person saw."""

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from scalebook.training.base import ConfigError, Problem, Workspace, one_line, trust
from scalebook.training.notebook import (
    LONGEST_NAME,
    NAME,
    NAME_REMEDY,
    Cell,
    Note,
    Notebook,
    Stored,
    edit,
    first_heading,
    store,
)

LONGEST_TITLE = 200


@dataclass(frozen=True)
class NotebookChoice:
    """A notebook in the picker. `name` is the stem of its file, as in the address.

    `problem` says what is wrong with the file or its front matter; the notebook can still be picked.
    """

    name: str
    title: str
    path: Path
    problem: str = ""
    twin: bool = False
    """Another notebook has the same title."""

    @property
    def label(self) -> str:
        """A label that no other notebook has."""
        text = f"{self.title} ({self.name}.md)" if self.twin else self.title
        return f"⚠ {text}" if self.problem else text


def heading(notebook: Notebook) -> str:
    """The title to draw above the cells; "" if the first cell is a note with a heading."""
    first = notebook.cells[0] if notebook.cells else None
    titled = isinstance(first, Note) and first_heading(first.source) is not None
    return "" if titled else one_line(notebook.title, LONGEST_TITLE)


def choices(workspace: Workspace) -> list[NotebookChoice]:
    """All notebooks of the workspace, by name; one that cannot be read has its `problem`."""
    choices_ = [_choice(path) for path in workspace.notebooks()]
    titles = Counter(choice.title for choice in choices_)
    return [replace(choice, twin=True) if titles[choice.title] > 1 else choice for choice in choices_]


def read(path: Path) -> Stored:
    """The notebook in `path`. ConfigError as from `store.read`, and for a link that leads out of the folder."""
    if problem := _out(path):
        raise ConfigError(path.name, *problem)
    return store.read(path)


def _out(path: Path) -> tuple[str, str] | None:
    """Why the notebook behind a link is not shown in the browser, and the remedy; None if it is shown."""
    if not path.is_symlink() or trust.within(Workspace(path.parent), path):
        return None
    return (
        "is a link that leads out of the folder",
        "Copy the file into the folder, or trust the folder (`scalebook ui --trust`).",
    )


def _choice(path: Path) -> NotebookChoice:
    name = path.stem.encode("utf-8", "replace").decode("utf-8")
    if name != path.stem:
        problem = f"The name of the file {path.name!a} is not UTF-8. Rename it."
        return NotebookChoice(name, name, path, problem)
    if out := _out(path):
        return NotebookChoice(name, name, path, str(ConfigError(path.name, *out)))
    try:
        facts = path.stat()
        stamps = facts.st_mtime_ns, facts.st_ctime_ns  # ctime: also when somebody grants access
    except OSError:
        stamps = 0, 0  # gone meanwhile, or a link to nowhere
    title, problem = _title(path, stamps)
    return NotebookChoice(name, one_line(title, LONGEST_TITLE), path, problem)


@lru_cache(maxsize=1000)
def _title(path: Path, _changed: tuple[int, int]) -> tuple[str, str]:
    """The notebook's title (the stem of its file if it cannot be read), and what is wrong with it."""
    try:
        return store.read_title(path)
    except ConfigError as error:
        return path.stem, str(error)


def load(choice: NotebookChoice) -> tuple[Stored | None, str]:
    """The notebook, and what is wrong with it in one line; None if it cannot be read."""
    try:
        return read(choice.path), choice.problem
    except ConfigError as error:
        return None, choice.problem or str(error)


def pick(workspace: Workspace, name: str | None) -> NotebookChoice | None:
    """The notebook called `name`; without a name the first one. None if there is none."""
    choices_ = choices(workspace)
    if name is None:
        choices_.sort(key=lambda choice: (bool(choice.problem), choice.name != "first-steps"))  # stable: else by name
        return choices_[0] if choices_ else None
    return next((choice for choice in choices_ if choice.name == name), None)


def key(cell: Cell, index: int) -> str:
    """The identifier of a cell between two drawings: its name; for a note its place and text."""
    name = getattr(cell, "name", "")
    return f"{type(cell).__name__.lower()}-{name or f'{index}-{abs(hash(cell.source)) % 10**8}'}"


def name_problems(notebook: Notebook | None, name: str, editing: str) -> list[Problem]:
    """The problems of a cell's name, which must suit the file's syntax, be unique, and identify the cell's runs.

    `editing` is the cell's present name, "" for a new cell.
    """
    if len(name) > LONGEST_NAME and name != editing:
        return [
            Problem(
                "out-of-bounds",
                "name",
                f"has {len(name)} characters, more than {LONGEST_NAME}",
                "Choose a shorter one.",
            )
        ]
    if not NAME.fullmatch(name):
        return [Problem("wrong-name", "name", f"cannot be {name!r}", NAME_REMEDY)]
    taken = {cell.name for cell in notebook.cells if not isinstance(cell, Note)} if notebook else set()
    if name != editing and name in taken:
        return [Problem("repeated", "name", f"{name} is already used in this notebook", "Choose another one.")]
    return []


def put_experiment(
    notebook: Notebook, name: str, config: dict[str, object], repeats: int, replaces: str = ""
) -> Notebook:
    """The notebook with this experiment. `replaces` is the name under which it was opened, "" for a new one.

    A renamed cell stays in its place. Raises ConfigError if the name belongs to another cell.
    """
    if name != replaces and notebook.experiment(name) is not None:
        raise ConfigError(
            "name", f"{name} is already used by another experiment of this notebook", "Choose another name."
        )
    if replaces and name != replaces and notebook.experiment(replaces) is not None:
        notebook = edit.rename(notebook, replaces, name)  # also in the comparisons that name it
    return edit.put_experiment(notebook, name, dict(config), repeats)


def named_cell(notebook: Notebook, name: str) -> Cell | None:
    """The cell called `name`, of any kind; None without one."""
    return next((cell for cell in notebook.cells if name and getattr(cell, "name", "") == name), None)


def as_begun(stored: Stored, name: str, before: str) -> Stored:
    """`stored` as it was when a draft of the cell `name` was begun, which then had the text `before`.

    So saving the draft notices an edit of the cell that was made since. Unchanged for a new cell, and one that is gone.
    """
    cell = named_cell(stored.notebook, name)
    if not before or cell is None or cell.source.rstrip() == before.rstrip():
        return stored
    return replace(
        stored, notebook=edit.replace_source(stored.notebook, stored.notebook.cells.index(cell), before), stamp=""
    )


def move(notebook: Notebook, index: int, by: int) -> Notebook:
    """The notebook with a cell moved up (-1) or down (+1); unchanged at the first and the last place."""
    to = index + by
    return edit.move(notebook, index, to) if 0 <= to < len(notebook.cells) else notebook


def difference(mine: str, theirs: str, called: str = "yours") -> str:
    """A unified diff from the present file `theirs` to the text `mine`, which is labelled `called`."""
    lines = difflib.unified_diff(
        theirs.splitlines(keepends=True), mine.splitlines(keepends=True), "in the file now", called, n=2
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def stamps(workspace: Workspace, path: Path | None) -> Sequence[object]:
    """Values that change with the notebook's file, and when runs or searches are added or removed."""
    stamps_: list[object] = []
    for place in (workspace.jobs, workspace.studies, path):
        try:
            stamps_.append(place.stat().st_mtime_ns if place else 0)
        except OSError:
            stamps_.append(0)
    return stamps_
