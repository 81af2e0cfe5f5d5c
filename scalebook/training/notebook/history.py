"""The states that a notebook has been in: the last `MOST`, kept beside it in the hidden folder, for an undo.

`.scalebook/history/NAME.md/000012.md` is the twelfth; `000013.back-000010.md` is a return to the tenth. The next undo
goes on from there, and takes its place. Only `store` writes here, under its lock; a state that is there never changes.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scalebook.training.workspace import Workspace

MOST: Final = 50
NAME: Final = re.compile(r"([0-9]{6,})(?:\.back-([0-9]{6,}))?\.md")


@dataclass(frozen=True)
class PastState:
    """One of them. `at` is when it was written, in seconds since the epoch."""

    number: int
    path: Path
    at: float
    back: int | None = None
    """The state that it was a return to."""

    def content(self) -> bytes:
        return self.path.read_bytes()


def folder(notebook: Path) -> Path:
    """Where the states of the notebook in this file are."""
    return Workspace(notebook.parent).history / notebook.name


def states(notebook: Path) -> list[PastState]:
    """What is kept of it, the newest first. Others may write and trim meanwhile."""
    found = []
    try:
        entries = [*os.scandir(folder(notebook))]
    except FileNotFoundError:
        return []
    for entry in entries:
        if known := NAME.fullmatch(entry.name):
            try:
                at = entry.stat().st_mtime
            except FileNotFoundError:
                continue
            back = int(known[2]) if known[2] else None
            found.append(PastState(int(known[1]), Path(entry.path), at, back))
    return sorted(found, key=lambda one: -one.number)


def before(notebook: Path, content: bytes) -> PastState | None:
    """The state before the file's `content`: what an undo returns to. None where there is none."""
    found = states(notebook)
    if found and found[0].content() != content:  # somebody has written past us: that is what is undone
        return found[0]
    at = found[0].number if found else 0
    by_number = {one.number: one for one in found}
    while at in by_number and (back := by_number[at].back) is not None:
        at = back
    return next((one for one in found if one.number < at), None)


def keep(notebook: Path, content: bytes, back: int | None = None) -> None:
    """Keep a state as the newest, for its owner's eyes only, unless it is that already; the oldest beyond `MOST` go."""
    found = states(notebook)
    if found and back is None and found[0].content() == content:
        return
    Workspace(notebook.parent).create()
    here = folder(notebook)
    for one in (here.parent, here):
        one.mkdir(mode=0o700, exist_ok=True)
    number = found[0].number + 1 if found else 1
    name = f"{number:06d}.md" if back is None else f"{number:06d}.back-{back:06d}.md"
    beside = here / f".{name}.{os.getpid()}"
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        beside.replace(here / name)
    finally:
        beside.unlink(missing_ok=True)
    again = found[:1] if back is not None and found and found[0].back is not None else []
    for old in [*again, *found[MOST - 1 + len(again) :]]:
        old.path.unlink(missing_ok=True)
