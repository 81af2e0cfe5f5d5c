"""Notebooks on disk: read, and written in one step, never over an edit that somebody else made meanwhile."""

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scalebook.training.base import ConfigError, Workspace
from scalebook.training.base.files import disk_errors, records, safe_reading, yaml_flow
from scalebook.training.notebook import history
from scalebook.training.notebook.cells import Notebook
from scalebook.training.notebook.front import front_problem, split_front
from scalebook.training.notebook.history import PastState
from scalebook.training.notebook.parse import parse, title

NEW = "---\ntitle: {title}\n---\n"
LONGEST_STEM = 200
"""Bytes of a new file's name; most file systems take 255, and a number may follow."""


@dataclass(frozen=True)
class Stored:
    """A notebook as it was read or written. `stamp` is the hash of the file's bytes at that moment."""

    path: Path
    notebook: Notebook
    stamp: str

    @property
    def is_outdated(self) -> bool:
        """Whether the file has changed since, which saving then notices: it has no stamp."""
        return not self.stamp


class EditedMeanwhile(Exception):
    """The file has changed since it was read. Nothing was written; `mine` and `on_disk` are here to choose from, both
    made from `base`.

    To keep one's own, `save(on_disk, mine)`; to keep the file, go on with `on_disk`.
    """

    def __init__(self, mine: Notebook, theirs: Stored, base: Notebook) -> None:
        super().__init__(f"{theirs.path.name} was edited elsewhere")
        self.mine, self.on_disk, self.base = mine, theirs, base

    def __reduce__(self) -> tuple[type["EditedMeanwhile"], tuple[Notebook, Stored, Notebook]]:
        return type(self), (self.mine, self.on_disk, self.base)


def read(path: Path) -> Stored:
    """The notebook in `path`; ConfigError where that is missing, no file, no UTF-8 text, or beyond a limit."""
    content = _content(path)
    with _named(path):
        return Stored(path, parse(safe_reading.decoded(path, content), path.stem), _stamp(content))


def read_title(path: Path) -> tuple[str, str]:
    """The title of the notebook in `path`, and what is wrong with its front matter ("" if nothing).

    For lists of notebooks: its cells are not read. ConfigError as `read`.
    """
    text = safe_reading.decoded(path, _content(path))
    with _named(path):
        wrong = front_problem(split_front(text)[0])
        return title(text, path.stem), f"front matter, line {wrong[1]}: {wrong[0]}" if wrong else ""


def _content(path: Path) -> bytes:
    if not path.exists() and not path.is_symlink():
        raise ConfigError(str(path), "does not exist", "Use the name of a notebook, a file that ends in .md.")
    return safe_reading.read_bytes(path, regular=True)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """What is wrong with the notebook as a whole is said of its file."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(str(path), error.problem.message, error.problem.fix) from error


def save(stored: Stored, notebook: Notebook, *, back: int | None = None) -> Stored:
    """Write `notebook` where `stored` came from, if the file is still as it was then; else raise EditedMeanwhile.

    What was there and what is there now are kept in `history`; `back` is the number of a state that this returns to.
    Readers see the old or the new file, whole, also after a power cut. The file's mode stays, a symbolic link stays a
    link. A file that is gone is written again. Other processes that save wait; other editors are noticed by the file's
    content, but for the instant between looking and replacing.
    """
    path = stored.path.resolve()
    content = notebook.text.encode("utf-8")
    made = Stored(stored.path, parse(notebook.text, path.stem), _stamp(content))  # ConfigError before it is written
    with disk_errors(path.parent), locked_folder(path.parent):
        if path.exists():
            current = read(path)
            if current.stamp not in (stored.stamp, _stamp(content)):
                theirs = Stored(stored.path, current.notebook, current.stamp)
                raise EditedMeanwhile(notebook, theirs, stored.notebook)
            if current.stamp == _stamp(content):
                return made
            history.save_state(stored.path, current.notebook.text.encode("utf-8"))
        mode = path.stat().st_mode & 0o7777 if path.exists() else None
        records.put(path, content, durable=True, mode=mode)
        history.save_state(stored.path, content, back)
    return made


def restore(stored: Stored, state: PastState) -> Stored:
    """Write an earlier state of the notebook again. Raises as `save`."""
    text = safe_reading.decoded(state.path, state.content())
    return save(stored, parse(text, stored.path.stem), back=state.number)


def give_up(theirs: Stored, mine: Notebook) -> None:
    """Leave the file as it is; keep `mine`, which was not saved, in its history."""
    with disk_errors(theirs.path.parent), locked_folder(theirs.path.parent):
        history.save_state(theirs.path, theirs.notebook.text.encode("utf-8"))
        history.save_state(theirs.path, mine.text.encode("utf-8"))


def save_beside(stored: Stored, notebook: Notebook) -> Path:
    """Write `notebook` to a new file next to the original (`NAME-2.md`), which stays as it is."""
    number = 2
    while True:
        path = stored.path.with_name(f"{stored.path.stem}-{number}.md")
        if history.is_taken(path):
            number += 1
            continue
        try:
            with disk_errors(path.parent), path.open("x", encoding="utf-8", newline="") as file:
                file.write(notebook.text)
        except FileExistsError:
            number += 1
        else:
            return path


def create(workspace: Workspace, called: str) -> Stored:
    """A new notebook with the title `called`, without a cell. The file's name is the beginning of the title; a taken
    name gets a number."""
    stem = re.sub(r"[^\w]+", "-", called.strip().lower()).encode("utf-8")[:LONGEST_STEM].decode("utf-8", "ignore")
    stem = stem.strip("-_") or "notebook"
    heading = called.strip() or "Notebook"
    content = NEW.format(title=yaml_flow.flow(heading)).encode("utf-8")
    workspace.root.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = workspace.root / (f"{stem}.md" if number == 1 else f"{stem}-{number}.md")
        if history.is_taken(path):
            number += 1
            continue
        try:
            with path.open("xb") as file:
                # Scalebook's own umask is for its hidden folder: a notebook is for whoever the folder is for
                os.fchmod(file.fileno(), workspace.root.stat().st_mode & 0o644)
                file.write(content)
        except FileExistsError:
            number += 1
        else:
            return read(path)


def _stamp(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """A lock on the folder itself, which leaves no file behind. Held for the few ms of one write."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
