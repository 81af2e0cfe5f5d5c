"""From the text of a notebook to its cells, losing nothing."""

from training.notebook.bodies import read_body
from training.notebook.cells import BrokenCell, Cell, Note, Notebook
from training.notebook.fences import NAME, NAME_REMEDY, Fence, fences, first_heading
from training.notebook.front import front_title, is_blank, split_front
from training.notebook.lines import split_lines


def parse(text: str, name: str = "") -> Notebook:
    """The notebook whose file holds `text`; `parse(text).text == text` for every text.

    `name` (the file's stem) is the title where neither the front matter nor a `#` heading has one. Never raises: a
    fence that claims to be a cell and cannot be read becomes a BrokenCell.
    """
    front, body = split_front(text)
    lines = split_lines(body)
    cells: list[Cell] = []
    at = 0
    for fence in fences(body):
        if fence.start > at:
            cells.append(Note("".join(lines[at : fence.start])))
        at = fence.end
        while at < len(lines) and is_blank(lines[at]):
            at += 1
        cells.append(_cell(fence, "".join(lines[fence.start : at])))
    if at < len(lines):
        cells.append(Note("".join(lines[at:])))
    title = front_title(front) or first_heading(body) or name
    return Notebook(front, title, tuple(cells))


def _cell(fence: Fence, source: str) -> Cell:
    if not NAME.fullmatch(fence.name):
        what = f"the name {fence.name!r} cannot be used" if fence.name else "has no name"
        return BrokenCell(source, fence.kind, fence.name, f"{what}. {NAME_REMEDY}", fence.kind)
    if not fence.closed:
        why = "the fence is not closed, so the cell takes the rest of the notebook. Write ``` on a line after its YAML."
        return BrokenCell(source, fence.kind, fence.name, why, "fence")
    return read_body(source, fence.kind, fence.name, fence.body)
