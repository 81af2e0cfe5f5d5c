"""Fetches what a job writes on another node into its folder here, while it runs.

The folder itself is the only record of what has been fetched. For a file that only grows (the log, lines of JSON) the
next piece begins where the file here ends. Any other file is fetched whole under another name, and renamed when one
state of it is complete. So a piece that is requested or arrives twice changes nothing. `result.json` comes last: a
reader that sees it sees everything.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from scalebook.training.tracking import LINES, names

RESULT: Final = "result.json"
HERE: Final = frozenset(
    {
        "config.yaml",
        "job.json",
        "turn.json",
        "process.json",
        "signature",
        "usage.jsonl",
        "remote.json",
        "unrecorded",
        "joined.json",
        "standstill.json",
    }
)
"""Files that belong to the folder here and are never fetched."""
PIECE: Final = 2**21
"""The most bytes of a file in one piece; an answer has as many pieces as fit into ROOM."""
ROOM: Final = 2**22

Has = tuple[str, int]
"""Which state of a file the receiver has, and how many bytes of it."""


@dataclass(frozen=True)
class FilePiece:
    """Part of a file in the state `stamp`, which has `size` bytes."""

    path: str
    stamp: str
    offset: int
    data: bytes
    size: int


def grows(path: str) -> bool:
    return path == "log.txt" or path.endswith(".jsonl")


def files_of(folder: Path) -> list[str]:
    """The files of a job to fetch, in this order; not the temporary files of atomic writes."""
    paths = []
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        within = os.path.relpath(root, folder)
        paths += [file if within == "." else f"{within}/{file}" for file in files if not file.startswith(".")]
    late = [f"{names.SPOOL}/{LINES}", RESULT]  # after the files that they name, and after all else
    brought = (path for path in paths if path not in HERE)
    return sorted(brought, key=lambda path: (late.index(path) + 1 if path in late else 0, path))


def news(folder: Path, has: Mapping[str, Has], paths: list[str]) -> Iterator[FilePiece]:
    """The pieces of these files that the receiver lacks. Ends after a file of which more is left."""
    room = ROOM
    for path in paths:
        stamp, offset = has.get(path, ("", 0))
        try:
            piece = _piece(folder / path, path, stamp, offset)
        except OSError:  # gone meanwhile
            continue
        if piece is None:
            continue
        yield piece
        room -= len(piece.data)
        if room <= 0 or piece.offset + len(piece.data) < piece.size:
            return


def _piece(file: Path, path: str, stamp: str, offset: int) -> FilePiece | None:
    with file.open("rb") as source:
        facts = os.fstat(source.fileno())
        now = "" if grows(path) else f"{facts.st_mtime_ns}-{facts.st_size}-{facts.st_ino}"
        if now != stamp or offset > facts.st_size:
            offset = 0
        elif offset == facts.st_size:
            return None
        source.seek(offset)
        return FilePiece(path, now, offset, source.read(PIECE), facts.st_size)


class IncomingFiles:
    """Fills a job's folder here from another node; paths from there are checked to stay inside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._has: dict[str, Has] = {}

    def has(self) -> dict[str, Has]:
        """How much of each file is here."""
        growing = {path: ("", size_of(self.folder / path)) for path in self._grown()}
        return {**self._has, **growing}

    def write_piece(self, piece: FilePiece) -> None:
        """Write a piece. ValueError for a path that is not allowed. A piece that does not fit is dropped, and requested
        again."""
        target = self._place(piece.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if grows(piece.path):
            self._append(target, piece)
            return
        stamp, offset = self._has.get(piece.path, ("", 0))
        if piece.offset and (piece.stamp, piece.offset) != (stamp, offset):
            return
        beside = target.with_name(f".{target.name}.brought")
        with beside.open("r+b" if piece.offset else "wb") as file:
            file.seek(piece.offset)
            file.write(piece.data)
        end = piece.offset + len(piece.data)
        self._has[piece.path] = piece.stamp, end
        if end == piece.size:
            changed = int(piece.stamp.partition("-")[0])
            os.utime(beside, ns=(changed, changed))
            beside.replace(target.with_name(".result") if piece.path == RESULT else target)

    def prune(self, paths: list[str]) -> None:
        """Remove files that no longer exist on the node: checkpoints that a better one has replaced."""
        for path in [path for path in self._has if path not in paths and path != RESULT]:
            del self._has[path]
            with suppress(OSError):
                self._place(path).unlink()

    def finish(self) -> None:
        """Publish the result, when everything has arrived."""
        with suppress(FileNotFoundError):
            (self.folder / ".result").replace(self.folder / RESULT)

    def _append(self, target: Path, piece: FilePiece) -> None:
        if piece.offset > size_of(target):
            return
        with target.open("r+b" if target.exists() else "xb") as file:
            if piece.offset == 0 and size_of(target) > piece.size:
                file.truncate(0)  # it was begun anew there
            file.seek(piece.offset)
            file.write(piece.data)

    def _grown(self) -> list[str]:
        return [path for path in files_of(self.folder) if grows(path)]

    def _place(self, path: str) -> Path:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or path in HERE or any(part.startswith(".") for part in parts):
            raise ValueError(f"a node has sent a file named {path[:80]!r}")
        place = self.folder.joinpath(*parts)
        if any(parent.is_symlink() for parent in (place, *place.parents) if parent.is_relative_to(self.folder)):
            raise ValueError(f"a node has sent a file through a link, {path[:80]!r}")
        return place


def size_of(file: Path) -> int:
    """The file's size in bytes; 0 if it is missing."""
    try:
        return file.stat().st_size
    except OSError:
        return 0
