"""A notebook's file as a whole: called otherwise, copied, deleted, brought back. None of it loses an earlier state."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scalebook.training.errors import ConfigError
from scalebook.training.files.reading import decoded
from scalebook.training.files.room import understood
from scalebook.training.notebook import history, store
from scalebook.training.notebook.parse import title
from scalebook.training.notebook.store import LONGEST_STEM, EditedMeanwhile, Stored
from scalebook.training.notebook.titles import retitled
from scalebook.training.workspace import Workspace

STEM: Final = re.compile(r"\w[\w .+-]*")
STEM_REMEDY: Final = "Use letters, digits, spaces, `-`, `_`, `.` and `+`; begin with a letter or a digit."


@dataclass(frozen=True)
class DeletedNotebook:
    """One whose file is gone and whose states are kept. `at` is when that was, in seconds since the epoch."""

    path: Path
    title: str
    at: float


def require_stem(path: Path, stem: str) -> None:
    """ConfigError where the notebook in `path` cannot be called `stem`.md."""
    if stem == path.stem:
        return
    if not STEM.fullmatch(stem) or len(stem.encode("utf-8")) > LONGEST_STEM:
        raise ConfigError("file name", f"cannot be {stem[:LONGEST_STEM]!r}", STEM_REMEDY)
    new = path.with_name(f"{stem}.md")
    if history.taken(new):
        raise ConfigError("file name", f"{new.name} is taken", "Choose another one.")


def move_file(stored: Stored, stem: str) -> Stored:
    """The file and its earlier states under another name. ConfigError where that is taken; EditedMeanwhile."""
    require_stem(stored.path, stem)
    new = stored.path.with_name(f"{stem}.md")
    if new == stored.path:
        return stored
    with understood(new.parent), store.alone(new.parent):
        require_stem(stored.path, stem)
        _as_seen(stored)
        if (states := history.folder(stored.path)).exists():
            states.rename(history.folder(new))
        stored.path.rename(new)
    return store.read(new)


def duplicate(stored: Stored) -> Stored:
    """A copy beside it, without its states, called so in its title; its results stay with the original."""
    copy = retitled(stored.notebook, f"{stored.notebook.title} (copy)")
    return store.read(store.save_beside(stored, copy))


def delete(stored: Stored) -> None:
    """Remove the file; its last state is kept with the others. EditedMeanwhile where it is another by now."""
    with understood(stored.path.parent), store.alone(stored.path.parent):
        _as_seen(stored)
        history.keep(stored.path, stored.notebook.text.encode("utf-8"))
        os.utime(history.folder(stored.path))  # when it was deleted
        stored.path.unlink()


def deleted(workspace: Workspace) -> list[DeletedNotebook]:
    """Those that can be brought back, the last one first."""
    gone = []
    for folder in workspace.history.glob("*.md") if workspace.history.is_dir() else []:
        path = workspace.root / folder.name
        if not path.exists() and not path.is_symlink() and (states := history.states(path)):
            text = states[0].content().decode("utf-8", "replace")
            gone.append(DeletedNotebook(path, title(text, path.stem), folder.stat().st_mtime))
    return sorted(gone, key=lambda notebook: -notebook.at)


def bring_back(notebook: DeletedNotebook) -> Stored:
    """Write the last state of it again. ConfigError where another file has its name by now."""
    last = history.states(notebook.path)[0]
    text = decoded(last.path, last.content())
    with understood(notebook.path.parent), store.alone(notebook.path.parent):
        try:
            with notebook.path.open("x", encoding="utf-8", newline="") as file:
                file.write(text)
        except FileExistsError:
            raise ConfigError("notebook", f"{notebook.path.name} is there already", "Rename that one first.") from None
    return store.read(notebook.path)


def _as_seen(stored: Stored) -> None:
    current = store.read(stored.path)
    if current.stamp != stored.stamp:
        raise EditedMeanwhile(stored.notebook, current)
