"""From the text of a notebook to its cells, losing nothing."""

from typing import Final

from scalebook.training.base import ConfigError
from scalebook.training.notebook.bodies import read_body
from scalebook.training.notebook.cells import BrokenCell, Cell, Note, Notebook
from scalebook.training.notebook.fences import NAME, NAME_REMEDY, Fence, fences, first_heading
from scalebook.training.notebook.front import front_title, is_blank, split_front
from scalebook.training.notebook.lines import split_lines

MOST_LINES: Final = 25_000
MOST_CELLS: Final = 1_000
MOST_YAML: Final = 500_000
"""Characters in all cells together."""

MOST_VALUES: Final = 50_000
"""Most values in all cells together, 1.3 s to read; not counted, but estimated from what stands between values."""

SPLIT: Final = "Split it into several notebooks."


def parse(text: str, name: str = "") -> Notebook:
    """The notebook whose file holds `text`; `parse(text).text == text` for every text that is within the limits above.

    `name` (the file's stem) is the title where neither the front matter nor a `#` heading has one. A fence that claims
    to be a cell and cannot be read becomes a BrokenCell; ConfigError, before any cell is read, only beyond the limits.
    """
    front, body, lines = _opened(text)
    fences_ = fences(body)
    if len(fences_) > MOST_CELLS:
        raise ConfigError("notebook", f"has {len(fences_):,} cells, but at most {MOST_CELLS:,}", SPLIT)
    if (size := sum(len(fence.body) for fence in fences_)) > MOST_YAML:
        raise ConfigError("notebook", f"has {size:,} characters of YAML, but at most {MOST_YAML:,}", SPLIT)
    if (values := sum(fence.body.count(character) for fence in fences_ for character in ":,[\n")) > MOST_VALUES:
        raise ConfigError("notebook", f"has about {values:,} values in its cells, but at most {MOST_VALUES:,}", SPLIT)
    cells: list[Cell] = []
    position = 0
    for fence in fences_:
        if fence.start > position:
            cells.append(Note("".join(lines[position : fence.start])))
        position = fence.end
        while position < len(lines) and is_blank(lines[position]):
            position += 1
        cells.append(_cell(fence, "".join(lines[fence.start : position])))
    if position < len(lines):
        cells.append(Note("".join(lines[position:])))
    return Notebook(front, _title(front, body, name), tuple(cells))


def title(text: str, name: str = "") -> str:
    """What `parse` would call the notebook, without reading its cells. ConfigError where it has too many lines."""
    front, body, _ = _opened(text)
    return _title(front, body, name)


def _opened(text: str) -> tuple[str, str, list[str]]:
    """Front matter, the rest, and its lines."""
    front, body = split_front(text)
    lines = split_lines(body)
    if len(lines) > MOST_LINES:
        raise ConfigError("notebook", f"has {len(lines):,} lines, but at most {MOST_LINES:,}", SPLIT)
    return front, body, lines


def _title(front: str, body: str, name: str) -> str:
    return front_title(front) or first_heading(body) or name


def _cell(fence: Fence, source: str) -> Cell:
    if not NAME.fullmatch(fence.name):
        what = f"the name {fence.name!r} cannot be used" if fence.name else "has no name"
        return BrokenCell(source, fence.kind, fence.name, f"{what}. {NAME_REMEDY}", fence.kind)
    if not fence.closed:
        why = (
            "the fence is not closed, so the rest of the notebook is part of the cell. Add a line ``` after the YAML "
            "of the cell."
        )
        return BrokenCell(source, fence.kind, fence.name, why, "fence")
    return read_body(source, fence.kind, fence.name, fence.body)
