"""Renames, copies, deletes and restores the file of a notebook. None of it loses an earlier state."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scalebook.training.base import ConfigError, Workspace
from scalebook.training.base.files import disk_errors, safe_reading, yaml, yaml_flow
from scalebook.training.notebook import history, store
from scalebook.training.notebook.cells import Note, Notebook
from scalebook.training.notebook.front import BYTE_ORDER_MARK, block, front_problem, front_title
from scalebook.training.notebook.lines import line_end, split_lines
from scalebook.training.notebook.parse import parse, title
from scalebook.training.notebook.patch import patch, replaced
from scalebook.training.notebook.store import LONGEST_STEM, EditedMeanwhile, Stored

STEM: Final = re.compile(r"\w[\w .+-]*")
STEM_REMEDY: Final = "Use letters, digits, spaces, `-`, `_`, `.` and `+`, and begin with a letter or a digit."


@dataclass(frozen=True)
class DeletedNotebook:
    """A notebook without its file, whose states are kept. `at` is when it was deleted, in seconds since the epoch."""

    path: Path
    title: str
    at: float


def require_stem(path: Path, stem: str) -> None:
    """ConfigError if the notebook in `path` cannot be named `stem`.md."""
    if stem == path.stem:
        return
    if not STEM.fullmatch(stem) or len(stem.encode("utf-8")) > LONGEST_STEM:
        raise ConfigError("file name", f"cannot be {stem[:LONGEST_STEM]!r}", STEM_REMEDY)
    new = path.with_name(f"{stem}.md")
    if history.is_taken(new):
        raise ConfigError("file name", f"{new.name} is taken", "Choose another name.")


def move_file(stored: Stored, stem: str) -> Stored:
    """Rename the file and its earlier states. ConfigError if the name is taken; EditedMeanwhile."""
    require_stem(stored.path, stem)
    new = stored.path.with_name(f"{stem}.md")
    if new == stored.path:
        return stored
    with disk_errors(new.parent), store.locked_folder(new.parent):
        require_stem(stored.path, stem)
        _as_seen(stored)
        if (states := history.folder(stored.path)).exists():
            states.rename(history.folder(new))
        stored.path.rename(new)
    return store.read(new)


def duplicate(stored: Stored) -> Stored:
    """Copy the file beside itself, without its states; its title says so, and its results stay with the original."""
    copy = retitled(stored.notebook, f"{stored.notebook.title} (copy)")
    return store.read(store.save_beside(stored, copy))


def delete(stored: Stored) -> None:
    """Remove the file; its last state is kept with the others. EditedMeanwhile if it has changed."""
    with disk_errors(stored.path.parent), store.locked_folder(stored.path.parent):
        _as_seen(stored)
        history.save_state(stored.path, stored.notebook.text.encode("utf-8"))
        os.utime(history.folder(stored.path))  # when it was deleted
        stored.path.unlink()


def deleted(workspace: Workspace) -> list[DeletedNotebook]:
    """The deleted notebooks that can be brought back, the last one first."""
    gone = []
    for folder in workspace.history.glob("*.md") if workspace.history.is_dir() else []:
        path = workspace.root / folder.name
        if not path.exists() and not path.is_symlink() and (states := history.past_states(path)):
            text = states[0].content().decode("utf-8", "replace")
            gone.append(DeletedNotebook(path, title(text, path.stem), folder.stat().st_mtime))
    return sorted(gone, key=lambda notebook: -notebook.at)


def bring_back(notebook: DeletedNotebook) -> Stored:
    """Write the last state of a deleted notebook again. ConfigError if another file has its name by now."""
    last = history.past_states(notebook.path)[0]
    text = safe_reading.decoded(last.path, last.content())
    with disk_errors(notebook.path.parent), store.locked_folder(notebook.path.parent):
        try:
            with notebook.path.open("x", encoding="utf-8", newline="") as file:
                file.write(text)
        except FileExistsError:
            raise ConfigError(
                "notebook", f"{notebook.path.name} already exists", "Rename the existing notebook first."
            ) from None
    return store.read(notebook.path)


def _as_seen(stored: Stored) -> None:
    current = store.read(stored.path)
    if current.stamp != stored.stamp:
        raise EditedMeanwhile(stored.notebook, current, stored.notebook)


def retitled(nb: Notebook, title: str) -> Notebook:
    """`nb` with another title: in its front matter, in the `#` heading that is its title, or in new front matter.

    ConfigError where its front matter cannot be read, or cannot be changed in place.
    """
    if title == nb.title:
        return nb
    if problem := front_problem(nb.front):
        raise ConfigError("front matter", problem[0].message, "Fix it in the file first.")
    changed = None
    if front_title(nb.front) is None and re.fullmatch(r"[^\n#]*\S", title):
        changed = _in_heading(nb, title)
    if changed is None:
        changed = parse(_front(nb, title) + "".join(cell.source for cell in nb.cells), nb.title)
    if changed.title != title or len(changed.cells) != len(nb.cells):
        raise ConfigError("title", f"cannot be {title!r} here", "Choose another one, or edit the title in the file.")
    return changed


def _in_heading(nb: Notebook, title: str) -> Notebook | None:
    """None where no heading says it on one line of its own."""
    heading = re.compile(rf"(?m)^( {{0,3}}#[ \t]+){re.escape(nb.title)}[ \t]*$")
    for index, cell in enumerate(nb.cells):
        if isinstance(cell, Note) and (match := heading.search(cell.source)):
            text = cell.source[: match.start()] + match[1] + title + cell.source[match.end() :]
            changed = replaced(nb, index, text)
            return changed if changed.title == title else None
    return None


def _front(nb: Notebook, title: str) -> str:
    """The front matter with this title, its other keys and comments as they are."""
    newline, front = line_end(nb.text), nb.front
    mark = BYTE_ORDER_MARK if front.startswith(BYTE_ORDER_MARK) else ""
    written = block(front)
    if not written:
        return f"{mark}---{newline}title: {yaml_flow.flow(title)}{newline}---{newline}{front.removeprefix(mark)}"
    inner = written.removeprefix("\n").replace("\r\n", "\n")
    old = yaml.load(inner) or {}
    lines = split_lines(front.removeprefix(mark))
    behind = lines[1 + len(split_lines(inner)) :]
    new = patch(inner, old, {**old, "title": title}) if old else None
    new = f"title: {yaml_flow.flow(title)}\n{inner}" if new is None and "title" not in old else new
    if new is None:
        raise ConfigError("title", "cannot be changed in place", "Edit the title in the file.")
    return mark + lines[0] + new.replace("\n", newline) + "".join(behind)
