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


@dataclass(frozen=True)
class Headline:
    """One result of the notebook. `kind` and `name` are those of the cell that shows it, `sentence` is what it says,
    `states` its verdict in words, `details` one figure with its interval for each side."""

    kind: str
    name: str
    sentence: str
    states: Sequence[str] = ()
    details: Sequence[str] = ()
    note: str = ""
    """Where its figures come from, if not from runs that are here."""


@dataclass(frozen=True)
class ExportedAnswer:
    """What is known of a question that the notebook asks. `table` has its head first; `chart` is as that of `Chart`, ""
    where there is nothing to draw."""

    question: str
    sentence: str
    state: str
    table: Sequence[Sequence[str]] = ()
    remarks: Sequence[str] = ()
    chart: str = ""


@dataclass(frozen=True)
class Summary:
    """The results of a notebook, before its text."""

    headlines: Sequence[Headline]

    @property
    def note(self) -> str:
        """Where all figures come from, if it is the same place, which is not runs that are here."""
        notes = {headline.note for headline in self.headlines}
        return notes.pop() if len(notes) == 1 else ""


Block = UserMarkdown | CellHead | Heading | Facts | SourceText | DataTable | Chart | Remark | Summary


@dataclass(frozen=True)
class Document:
    """`text` is the notebook's own file; `exported_at` a date and time, in words."""

    title: str
    name: str
    text: str
    exported_at: str
    blocks: Sequence[Block] = field(default_factory=tuple)

    @property
    def headlines(self) -> Sequence[Headline]:
        """Those of its summary."""
        return [headline for block in self.blocks if isinstance(block, Summary) for headline in block.headlines]


def place(kind: str, name: str) -> str:
    """The place of a cell in the exported page, for links to it."""
    return f"{kind}-{name}"


def cut_lines(text: str) -> str:
    """`text` by whole lines, at most about `MOST_CODE` characters; the lines left out are counted."""
    if len(text) <= MOST_CODE:
        return text
    head = text[:MOST_CODE].rpartition("\n")[0] or text[:MOST_CODE]
    return f"{head}\n# … {len(text) - len(head):,} more characters in the notebook"


MOST_DETAILS: Final = 6
"""Sides of a claim that its headline shows."""
INTERVAL: Final = " % interval"
"""How the head of a column of intervals ends."""
NO_FIGURE: Final = ("", "-", "–")


def claim_headline(
    name: str, states: Sequence[str], statement: str, table: Sequence[Sequence[str]], note: str = ""
) -> Headline:
    """The headline of a claim. `table`: as `claim_table` has it, its head first.

    Of each side that has a verdict it shows the figure that the verdict is about: the last one with an interval, or,
    where nothing is compared, its own.
    """
    head, *rows = table
    intervals = [place for place, title in enumerate(head) if title.endswith(INTERVAL)]
    details = []
    for row in rows:
        if row[-1] in ("baseline", *NO_FIGURE):
            continue
        place = intervals[-1] if intervals else None
        figure = row[-2] if place is None else f"{row[place - 1]} ({row[place]})"
        missing = row[-2 if place is None else place - 1] in NO_FIGURE
        details.append(f"{row[0]}: {'no result' if missing else figure}")
    if len(details) > MOST_DETAILS:
        details[MOST_DETAILS - 1 :] = [f"and {len(details) - MOST_DETAILS + 1} more"]
    return Headline("claim", name, statement, states, details, note)
