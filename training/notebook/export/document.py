"""What an exported notebook consists of. Every text in here is plain: the writer of a format escapes it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

MOST_CODE: Final = 20_000
"""Characters of one config that are shown; the rest is cut, which the text says."""


@dataclass(frozen=True)
class UserMarkdown:
    """Markdown that a person wrote; not to be trusted."""

    source: str


@dataclass(frozen=True)
class CellHead:
    """The head of a cell: its kind and name, and its states in words: `finished`, `stale`."""

    kind: str
    name: str
    states: Sequence[str] = ()


@dataclass(frozen=True)
class Heading:
    """A heading of a part that the export adds."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Names and values, without pairs that have no value."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class SourceText:
    """A config or commands. `folded`: one line, until somebody opens it or prints the page."""

    title: str
    text: str
    language: str
    folded: bool = True


@dataclass(frozen=True)
class DataTable:
    """Rows of as many cells as `head`; `numeric` are the columns that are aligned to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[int] = ()
    best: int | None = None
    """The row that won."""


@dataclass(frozen=True)
class Chart:
    """`svg` is a whole `<svg>` element, safe, for a page that has `chart.css`."""

    svg: str
    title: str


@dataclass(frozen=True)
class Remark:
    """A sentence or two; `trouble` where something went wrong."""

    text: str
    trouble: bool = False


Block = UserMarkdown | CellHead | Heading | Facts | SourceText | DataTable | Chart | Remark


@dataclass(frozen=True)
class Document:
    """`text` is the notebook's own file; `exported_at` a date and time, in words."""

    title: str
    name: str
    text: str
    exported_at: str
    blocks: Sequence[Block] = field(default_factory=tuple)


def cut_lines(text: str) -> str:
    """`text` by whole lines, at most about `MOST_CODE` characters; the lines left out are counted."""
    if len(text) <= MOST_CODE:
        return text
    head = text[:MOST_CODE].rpartition("\n")[0] or text[:MOST_CODE]
    return f"{head}\n# … {len(text) - len(head):,} more characters in the notebook"
