"""Two edits of one notebook made side by side, put together where they touch different cells, or paragraphs of a note.

What both have changed is left to a person: nothing of either is ever dropped.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import pairwise

from scalebook.training.base import ConfigError
from scalebook.training.notebook.cells import Note, Notebook
from scalebook.training.notebook.lines import line_end, split_lines
from scalebook.training.notebook.parse import parse


@dataclass(frozen=True)
class _Piece:
    """A fenced cell, or a paragraph of a note. `gap`: the line end and the blank lines behind it."""

    text: str
    gap: str
    fenced: bool


@dataclass(frozen=True)
class _Hunk:
    """Pieces `start` to `end` of the common state became these."""

    start: int
    end: int
    pieces: tuple[_Piece, ...]

    @property
    def texts(self) -> list[str]:
        return [piece.text for piece in self.pieces]


def merged(base: Notebook, mine: Notebook, theirs: Notebook) -> Notebook | None:
    """`base` with the edits of both; None if both change the same, or the result would be read as something else.

    Where both add at the same place, theirs comes first.
    """
    front = _one_of(base.front, mine.front, theirs.front)
    if front is None:
        return None
    sides = _pieces(base), _pieces(mine), _pieces(theirs)
    pieces = _together(*sides)
    if pieces is None or not _has_all(pieces, *sides):
        return None
    try:
        notebook = parse(front + _joined(pieces, sides, line_end(base.text)), base.title)
    except ConfigError:
        return None
    fenced = [cell.source.rstrip() for cell in notebook.cells if not isinstance(cell, Note)]
    is_read_so = fenced == [piece.text for piece in pieces if piece.fenced]
    return notebook if is_read_so and not _is_taken(notebook, mine, theirs) else None


def _one_of(base: str, mine: str, theirs: str) -> str | None:
    """What one of them has changed; None where both did, and differently."""
    if mine in (base, theirs):
        return theirs
    return mine if theirs == base else None


def _pieces(notebook: Notebook) -> list[_Piece]:
    pieces = []
    for cell in notebook.cells:
        parts = _paragraphs(cell.source) if isinstance(cell, Note) else [cell.source]
        for part in parts:
            text = part.rstrip()
            pieces.append(_Piece(text, part[len(text) :], not isinstance(cell, Note)))
    return pieces


def _paragraphs(text: str) -> Iterator[str]:
    """Each with the blank lines behind it."""
    lines: list[str] = []
    for line in split_lines(text):
        if lines and not lines[-1].strip() and line.strip():
            yield "".join(lines)
            lines = []
        lines.append(line)
    if lines:
        yield "".join(lines)


def _opcodes(base: Sequence[_Piece], edited: Sequence[_Piece]) -> Sequence[tuple[str, int, int, int, int]]:
    before, now = ([piece.text for piece in pieces] for pieces in (base, edited))
    return SequenceMatcher(None, before, now, autojunk=False).get_opcodes()


def _hunks(base: Sequence[_Piece], edited: Sequence[_Piece]) -> list[_Hunk]:
    """As small as they can be told: neighbours that were edited in place are a hunk each."""
    hunks = []
    for kind, i, to, j, end in _opcodes(base, edited):
        kinds = [[piece.fenced for piece in pieces] for pieces in (base[i:to], edited[j:end])]
        if kind == "replace" and kinds[0] == kinds[1]:
            hunks += [_Hunk(i + k, i + k + 1, (edited[j + k],)) for k in range(to - i)]
        elif kind != "equal":
            hunks.append(_Hunk(i, to, tuple(edited[j:end])))
    return hunks


def _gaps(base: Sequence[_Piece], edited: Sequence[_Piece]) -> dict[int, str]:
    """Of each piece of `base` that stayed, by its place: the gap that it has now."""
    stayed = [codes[1:] for codes in _opcodes(base, edited) if codes[0] == "equal"]
    return {i + k: edited[j + k].gap for i, to, j, _ in stayed for k in range(to - i)}


def _together(base: Sequence[_Piece], mine: Sequence[_Piece], theirs: Sequence[_Piece]) -> list[_Piece] | None:
    """`base` with the hunks of both in their places; None where two of them overlap."""
    ours, others = _hunks(base, mine), _hunks(base, theirs)
    for one in ours:
        for other in others:
            overlap = max(one.start, other.start) < min(one.end, other.end)
            inside = one.start < other.start < one.end or other.start < one.start < other.end
            if (overlap or inside) and not _is_same(one, other):
                return None
    own = [one for one in ours if not any(_is_same(one, other) for other in others)]
    my_gaps, their_gaps = _gaps(base, mine), _gaps(base, theirs)
    stays = []
    for i, piece in enumerate(base):
        my_gap, their_gap = my_gaps.get(i, piece.gap), their_gaps.get(i, piece.gap)
        gap = _one_of(piece.gap, my_gap, their_gap)
        stays.append(replace(piece, gap=max(my_gap, their_gap, key=len) if gap is None else gap))
    pieces: list[_Piece] = []
    position = 0
    for hunk, _ in sorted([*((other, 0) for other in others), *((one, 1) for one in own)], key=_place):
        pieces += [*stays[position : hunk.start], *hunk.pieces]
        position = hunk.end
    return [*pieces, *stays[position:]]


def _place(of: tuple[_Hunk, int]) -> tuple[int, bool, int]:
    """What is only added at a place stands before what replaces the pieces there; of two, theirs is first."""
    hunk, side = of
    return hunk.start, hunk.end > hunk.start, side


def _is_same(one: _Hunk, other: _Hunk) -> bool:
    return (one.start, one.end, one.texts) == (other.start, other.end, other.texts)


def _has_all(
    pieces: Sequence[_Piece], base: Sequence[_Piece], mine: Sequence[_Piece], theirs: Sequence[_Piece]
) -> bool:
    """Whether each text stands there as often as both edits say: not so where one has moved what the other removed."""
    now, before, my, their = (Counter(piece.text for piece in some) for some in (pieces, base, mine, theirs))
    for text in {*now, *before, *my, *their}:
        by_me, by_them = my[text] - before[text], their[text] - before[text]
        if now[text] != before[text] + (by_me if by_me == by_them else by_me + by_them):
            return False
    return True


def _joined(pieces: Sequence[_Piece], sides: Sequence[Sequence[_Piece]], newline: str) -> str:
    """Two pieces that did not stand beside each other before get a blank line between them."""
    beside = {(one.text, other.text) for side in sides for one, other in pairwise(side)}
    text = ""
    for i, piece in enumerate(pieces):
        set_off = i + 1 < len(pieces) and (piece.text, pieces[i + 1].text) not in beside
        text += piece.text + (newline * 2 if set_off and len(split_lines(piece.gap)) < 2 else piece.gap)
    return text


def _is_taken(notebook: Notebook, mine: Notebook, theirs: Notebook) -> bool:
    """Whether both have given a name to different cells."""
    now, my, their = (Counter(getattr(cell, "name", "") for cell in nb.cells) for nb in (notebook, mine, theirs))
    return any(count > max(my[name], their[name]) for name, count in now.items() if name)
