"""The earlier states of a notebook: the last `MOST`, kept beside it in the hidden folder, for an undo.

`.scalebook/history/NAME.md/000012.md` is the twelfth; `000013.back-000010.md` is a return to the tenth. The next undo
goes on from there, and takes its place. Only `store` writes here, under its lock; a state that is there never changes.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scalebook.training.base import ConfigError, Workspace, trust
from scalebook.training.base.files import records, safe_reading

MOST_STATES: Final = 50
NAME: Final = re.compile(r"([0-9]{6,})(?:\.back-([0-9]{6,}))?\.md")


@dataclass(frozen=True)
class PastState:
    """An earlier state. `changed_s` is when it was written, in seconds since the epoch."""

    number: int
    path: Path
    changed_s: float
    back: int | None = None
    """The number of the state that it returned to."""

    def content(self) -> bytes:
        return safe_reading.whole(self.path)


def folder(notebook: Path) -> Path:
    """The folder with the kept states of a notebook's file."""
    return Workspace(notebook.parent).history / notebook.name


def is_taken(notebook: Path) -> bool:
    """Whether a notebook has or had this name: the states of a deleted one are kept under it."""
    return notebook.exists() or notebook.is_symlink() or folder(notebook).exists()


def past_states(notebook: Path) -> list[PastState]:
    """The kept states of a notebook, the newest first. Others may write and trim meanwhile."""
    states_ = []
    if _is_out(notebook):
        return []
    try:
        entries = [*os.scandir(folder(notebook))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    for entry in entries:
        if (match := NAME.fullmatch(entry.name)) and entry.is_file(follow_symlinks=False):
            try:
                changed_s = entry.stat().st_mtime
            except FileNotFoundError:
                continue
            back = int(match[2]) if match[2] else None
            states_.append(PastState(int(match[1]), Path(entry.path), changed_s, back))
    return sorted(states_, key=lambda state: -state.number)


def previous_state(notebook: Path, content: bytes) -> PastState | None:
    """The state before the file's `content`: what an undo returns to. None where there is none."""
    newest_first = past_states(notebook)
    if newest_first and newest_first[0].content() != content:  # somebody has written past us: that is what is undone
        return newest_first[0]
    number = newest_first[0].number if newest_first else 0
    by_number = {state.number: state for state in newest_first}
    while number in by_number and (back := by_number[number].back) is not None:
        number = back
    return next((state for state in newest_first if state.number < number), None)


def save_state(notebook: Path, content: bytes, back: int | None = None) -> None:
    """Keep a state as the newest, for its owner's eyes only, unless it is that already; the oldest beyond `MOST` go."""
    if _is_out(notebook):
        raise ConfigError(str(folder(notebook)), "is a link that leads out of the folder", "Remove it.")
    newest_first = past_states(notebook)
    if newest_first and back is None and newest_first[0].content() == content:
        return
    Workspace(notebook.parent).create()
    directory = folder(notebook)
    for parent in (directory.parent, directory):
        parent.mkdir(mode=0o700, exist_ok=True)
    number = newest_first[0].number + 1 if newest_first else 1
    name = f"{number:06d}.md" if back is None else f"{number:06d}.back-{back:06d}.md"
    records.put(directory / name, content, mode=0o600)
    again = newest_first[:1] if back is not None and newest_first and newest_first[0].back is not None else []
    for old in [*again, *newest_first[MOST_STATES - 1 + len(again) :]]:
        old.path.unlink(missing_ok=True)


def _is_out(notebook: Path) -> bool:
    """Whether the states would be kept outside of the notebook's folder, by way of a link."""
    return not trust.within(Workspace(notebook.parent), folder(notebook))
