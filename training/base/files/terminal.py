"""What commands print, so that nothing of a stranger's moves the cursor or turns the letters of a terminal around.

Names, paths, messages and figures may come from anybody's file. So every command prints by `EscapingStream`, to a
terminal or not: control characters and such as have no shape (escape sequences, directions, zero widths) are written
out, as `\\x1b`. What Scalebook itself draws goes by `draw`; what is meant to be kept, a log or a config, by `give`; and
what a person's own program prints in the foreground is not touched (`untouched`).
"""

import sys
import unicodedata
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, cast

KEPT = "\n\t"


def visible(text: str) -> str:
    """`text` with all that has no shape escaped, but for line ends, tabs and spaces."""
    if text.isprintable():
        return text
    return "".join(character if _has_shape(character) else _escaped(character) for character in text)


def _has_shape(character: str) -> bool:
    return character.isprintable() or character in KEPT or unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class EscapingStream:
    """A stream of text that writes `visible` to another one, whose encoding need not have all letters."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        draw(self, visible(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def draw(out: Any, text: str) -> None:
    """Write `text` as it is: names in it have been made `visible`."""
    stream = out.stream if isinstance(out, EscapingStream) else out
    try:
        stream.write(text)
    except UnicodeEncodeError:
        stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))


def overwrite_line(out: Any, text: str) -> None:
    """`text` in place of the line that the cursor of this terminal is in."""
    draw(out, f"\r\x1b[2K{visible(text)}")
    out.flush()


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = (), rule: int | None = None) -> list[str]:
    """Lines of cells in columns, those of `right` to the right; a rule before row `rule`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if rule is not None:
        rows = [*rows[:rule], ["-" * width for width in widths], *rows[rule:]]
    lines = [[*zip(row, widths, strict=True)] for row in rows]
    return [
        "  ".join(cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(line)).rstrip()
        for line in lines
    ]


def give(text: str) -> None:
    """What may go to a file, on standard output: there as it is, to the byte; on a terminal as all else."""
    draw(sys.stdout, visible(text.replace("\r\n", "\n").replace("\r", "\n")) if sys.stdout.isatty() else text)


@contextmanager
def escaped_output() -> Iterator[None]:
    """While inside, standard output and error are `EscapingStream`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, EscapingStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def untouched() -> Iterator[None]:
    """Within `escaped_output`, while a person's own program prints: its progress bar moves the cursor."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream.stream if isinstance(stream, EscapingStream) else stream for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
