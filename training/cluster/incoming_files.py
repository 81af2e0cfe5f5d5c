"""What a job writes on another machine, brought to its folder while it runs.

Nobody keeps an account of what was brought but the folder itself: of a file that only grows (the log, lines of JSON)
the next piece begins where the file here ends; any other is brought whole, beside its place, and put there in one step
when all of one state of it has come. So a piece that is asked for twice, or comes twice, changes nothing. `result.json`
comes last: whoever sees it sees everything.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from scalebook.training.tracking import names
from scalebook.training.tracking.spool import LINES

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
    }
)
"""Of the folder where the workspace is: never brought."""
PIECE: Final = 2**21
"""Bytes of a file in one answer; an answer has as many pieces as fit into ROOM."""
ROOM: Final = 2**22

Has = tuple[str, int]
"""Which state of a file the other side has, and how many bytes of it."""


@dataclass(frozen=True)
class FilePiece:
    """Part of a file, in the state `stamp`, of `size` bytes in that state."""

    path: str
    stamp: str
    offset: int
    data: bytes
    size: int


def grows(path: str) -> bool:
    return path == "log.txt" or path.endswith(".jsonl")


def files_of(folder: Path) -> list[str]:
    """The files of a job that are brought, in this order. Those that are being written beside their place are not."""
    paths = []
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        within = os.path.relpath(root, folder)
        paths += [file if within == "." else f"{within}/{file}" for file in files if not file.startswith(".")]
    late = [f"{names.SPOOL}/{LINES}", RESULT]  # after the files that they name, and after all else
    brought = (path for path in paths if path not in HERE)
    return sorted(brought, key=lambda path: (late.index(path) + 1 if path in late else 0, path))


def news(folder: Path, has: Mapping[str, Has], paths: list[str]) -> Iterator[FilePiece]:
    """What the other side lacks of these files. Ends at the first file that is not there as a whole."""
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
    """The folder of a job here, being filled from another machine, whose word is not trusted to stay within it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._has: dict[str, Has] = {}

    def has(self) -> dict[str, Has]:
        """Of files that grow, what lies here."""
        growing = {path: ("", size_of(self.folder / path)) for path in self._grown()}
        return {**self._has, **growing}

    def write_piece(self, piece: FilePiece) -> None:
        """ValueError for a path that may not be. A piece that does not fit is dropped: it is asked for again."""
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
        """Remove what was brought and is not there any more: checkpoints that a better one has replaced."""
        for path in [path for path in self._has if path not in paths and path != RESULT]:
            del self._has[path]
            with suppress(OSError):
                self._place(path).unlink()

    def finish(self) -> None:
        """All has come: let the result be seen."""
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
            raise ValueError(f"a machine has sent a file named {path[:80]!r}")
        place = self.folder.joinpath(*parts)
        if any(parent.is_symlink() for parent in (place, *place.parents) if parent.is_relative_to(self.folder)):
            raise ValueError(f"a machine has sent a file through a link, {path[:80]!r}")
        return place


def size_of(file: Path) -> int:
    """Bytes; 0 where there is none."""
    try:
        return file.stat().st_size
    except OSError:
        return 0
