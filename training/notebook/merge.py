"""Two edits of one notebook made side by side, put together where they touch different cells, or paragraphs of a note.

What both have changed is left to a person, who may keep both versions: nothing of either is ever dropped.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Final

from scalebook.training.base import ConfigError
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import Note, Notebook
from scalebook.training.notebook.fences import NAME, fences
from scalebook.training.notebook.lines import line_end, split_lines
from scalebook.training.notebook.parse import parse

RULE: Final = "---"
"""The line in Markdown between two versions of a text."""


@dataclass(frozen=True)
class _Piece:
    """A fenced cell, or a paragraph of a note. `gap`: the line end and the blank lines behind it."""

    text: str
    gap: str
    fenced: bool
    is_mine: bool = field(default=False, compare=False)
    """Of what is added to their version."""


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
    notebook = _read_back(front, pieces, sides, base)
    return None if notebook is None or _is_taken(notebook, mine, theirs) else notebook


def both_kept(base: Notebook, mine: Notebook, theirs: Notebook) -> Notebook | None:
    """`theirs` with all that I changed: of a cell, or a paragraph of a note, that both have changed, both versions.

    My text follows theirs below a line; my cell follows theirs under a free name if the name is taken. None if both
    changed the front matter, which a notebook has once, or if the result would be read as something else.
    """
    front = _one_of(base.front, mine.front, theirs.front)
    if front is None:
        return None
    sides = _pieces(base), _pieces(mine), _pieces(theirs)
    return _read_back(front, _with_free_names(_side_by_side(*sides)), sides, base)


def _read_back(
    front: str, pieces: Sequence[_Piece], sides: Sequence[Sequence[_Piece]], base: Notebook
) -> Notebook | None:
    """The notebook with these pieces; None if its cells would be read as others."""
    try:
        notebook = parse(front + _joined(pieces, sides, line_end(base.text)), base.title)
    except ConfigError:
        return None
    fenced = [cell.source.rstrip() for cell in notebook.cells if not isinstance(cell, Note)]
    return notebook if fenced == [piece.text for piece in pieces if piece.fenced] else None


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
    if any(_overlap(one, other) and not _is_same(one, other) for one in ours for other in others):
        return None
    own = [one for one in ours if not any(_is_same(one, other) for other in others)]
    stays = _with_gaps(base, mine, theirs)
    pieces: list[_Piece] = []
    position = 0
    for hunk, _ in sorted([*((other, 0) for other in others), *((one, 1) for one in own)], key=_place):
        pieces += [*stays[position : hunk.start], *hunk.pieces]
        position = hunk.end
    return [*pieces, *stays[position:]]


def _overlap(one: _Hunk, other: _Hunk) -> bool:
    shared = max(one.start, other.start) < min(one.end, other.end)
    return shared or one.start < other.start < one.end or other.start < one.start < other.end


def _with_gaps(base: Sequence[_Piece], mine: Sequence[_Piece], theirs: Sequence[_Piece]) -> list[_Piece]:
    """The pieces of `base` with the gaps that they have in the two edits; the longer one where both changed it."""
    my_gaps, their_gaps = _gaps(base, mine), _gaps(base, theirs)
    stays = []
    for i, piece in enumerate(base):
        my_gap, their_gap = my_gaps.get(i, piece.gap), their_gaps.get(i, piece.gap)
        gap = _one_of(piece.gap, my_gap, their_gap)
        stays.append(replace(piece, gap=max(my_gap, their_gap, key=len) if gap is None else gap))
    return stays


def _side_by_side(base: Sequence[_Piece], mine: Sequence[_Piece], theirs: Sequence[_Piece]) -> list[_Piece]:
    """`base` with the hunks of both. Where hunks overlap: their version, then what it lacks of mine."""
    stays, others = _with_gaps(base, mine, theirs), _hunks(base, theirs)
    own = [hunk for hunk in _hunks(base, mine) if not any(_is_same(hunk, other) for other in others)]
    pieces: list[_Piece] = []
    position = 0
    for group in _groups(own, others):
        start, end = min(hunk.start for hunk, _ in group), max(hunk.end for hunk, _ in group)
        their, my = (_version(stays, start, end, [hunk for hunk, of in group if of == side]) for side in (0, 1))
        added = [replace(piece, is_mine=True) for piece in my if (piece.text, piece.fenced) not in _keys(their)]
        if their and added and not their[-1].fenced and not added[0].fenced:
            their.append(_Piece(RULE, "\n\n", fenced=False))
        pieces += [*stays[position:start], *their, *added]
        position = end
    return [*pieces, *stays[position:]]


def _groups(own: Sequence[_Hunk], others: Sequence[_Hunk]) -> list[list[tuple[_Hunk, int]]]:
    """The hunks in their order, those that overlap together, each with its side: 0 for theirs, 1 for mine."""
    groups: list[list[tuple[_Hunk, int]]] = []
    for hunk, side in sorted([*((other, 0) for other in others), *((one, 1) for one in own)], key=_place):
        if groups and any(_overlap(hunk, before) for before, _ in groups[-1]):
            groups[-1].append((hunk, side))
        else:
            groups.append([(hunk, side)])
    return groups


def _version(stays: Sequence[_Piece], start: int, end: int, hunks: Sequence[_Hunk]) -> list[_Piece]:
    """Pieces `start` to `end` as one side has them; nothing where it has changed nothing there."""
    pieces: list[_Piece] = []
    position = start
    for hunk in hunks:
        pieces += [*stays[position : hunk.start], *hunk.pieces]
        position = hunk.end
    return [*pieces, *stays[position:end]] if hunks else []


def _keys(pieces: Sequence[_Piece]) -> set[tuple[str, bool]]:
    return {(piece.text, piece.fenced) for piece in pieces}


def _with_free_names(pieces: Sequence[_Piece]) -> list[_Piece]:
    """My cells whose name is taken by one of theirs get another one."""
    heads = [fences(piece.text)[:1] if piece.fenced else [] for piece in pieces]
    taken = {fence.name for piece, head in zip(pieces, heads, strict=True) for fence in head if not piece.is_mine}
    every = {fence.name for head in heads for fence in head}
    named = []
    for piece, head in zip(pieces, heads, strict=True):
        if piece.is_mine and head and NAME.fullmatch(head[0].name) and head[0].name in taken:
            name = edit.free_name(head[0].name, every)
            every.add(name)
            named.append(replace(piece, text=edit.with_name(piece.text, head[0].kind, name)))
        else:
            named.append(piece)
    return named


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
