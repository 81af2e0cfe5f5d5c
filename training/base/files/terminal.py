"""What commands print: a stranger's text must not control the terminal.

Names, paths, messages and figures may come from anybody's file. So every command prints through `EscapingStream`, to a
terminal or not: control and invisible characters (escape sequences, directions, zero widths) are escaped, as `\\x1b`.
What Scalebook itself draws goes through `draw`; what is meant for a file, a log or a config, through `give`; what the
user's own program prints in the foreground is left alone (`untouched`).
"""

import sys
import unicodedata
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, cast

KEPT = "\n\t"


def visible(text: str) -> str:
    """`text` with invisible characters escaped, except line ends, tabs and spaces."""
    if text.isprintable():
        return text
    return "".join(character if _has_shape(character) else _escaped(character) for character in text)


def _has_shape(character: str) -> bool:
    return character.isprintable() or character in KEPT or unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class EscapingStream:
    """A text stream that writes `visible` text to another one; characters that its encoding lacks are escaped."""

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
    """Write `text` as it is; the caller has made names in it `visible`."""
    stream = out.stream if isinstance(out, EscapingStream) else out
    try:
        stream.write(text)
    except UnicodeEncodeError:
        stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))


def overwrite_line(out: Any, text: str) -> None:
    """Replace the terminal's current line with `text`."""
    draw(out, f"\r\x1b[2K{visible(text)}")
    out.flush()


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = (), rule: int | None = None) -> list[str]:
    """Lines with cells in columns, those in `right` right-aligned; a rule before row `rule`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if rule is not None:
        rows = [*rows[:rule], ["-" * width for width in widths], *rows[rule:]]
    lines = [[*zip(row, widths, strict=True)] for row in rows]
    return [
        "  ".join(cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(line)).rstrip()
        for line in lines
    ]


def give(text: str) -> None:
    """Print what may go to a file: unchanged, to the byte, unless standard output is a terminal."""
    draw(sys.stdout, visible(text.replace("\r\n", "\n").replace("\r", "\n")) if sys.stdout.isatty() else text)


@contextmanager
def escaped_output() -> Iterator[None]:
    """Make standard output and error an `EscapingStream` meanwhile."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, EscapingStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def untouched() -> Iterator[None]:
    """Inside `escaped_output`: leave output unchanged while the user's own program prints (its progress bar moves the
    cursor)."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream.stream if isinstance(stream, EscapingStream) else stream for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
