"""Put, replace and take away the source text of cells, so that no other cell changes or is read differently."""

import re

from scalebook.training.errors import ConfigError
from scalebook.training.notebook.cells import Note, Notebook
from scalebook.training.notebook.front import BYTE_ORDER_MARK, is_blank
from scalebook.training.notebook.lines import line_end, split_lines
from scalebook.training.notebook.parse import parse


def replaced(nb: Notebook, index: int, text: str) -> Notebook:
    """Cell `index` with the source `text`; the blank lines after it stay. Blank text removes it."""
    if _blank(text):
        return removed(nb, index)
    old = split_lines(nb.cells[index].source)
    blanks = len(old)
    while is_blank(old[blanks - 1]):
        blanks -= 1
    ended = old[blanks - 1].endswith(("\n", "\r")) or index + 1 < len(nb.cells)
    text = _with_ends(nb, text)
    text = _ended(text.rstrip(" \t\r\n"), line_end(nb.text)) if ended else text
    return _joined(nb, index, index + 1, nb.front, [], text + "".join(old[blanks:]) if ended else text)


def inserted(nb: Notebook, index: int, text: str) -> Notebook:
    """`text` before cell `index`, set off from what stands around it by blank lines."""
    if _blank(text):
        return nb
    newline = line_end(nb.text)
    text = _with_ends(nb, text)
    text = _set_off(text, newline) if index < len(nb.cells) else _ended(text, newline)
    before = [cell.source for cell in nb.cells[:index]]
    front = nb.front
    if before:
        before[-1] = _set_off(before[-1], newline)
    elif front.strip(BYTE_ORDER_MARK):
        front = _set_off(front, newline)
    return _joined(nb, index, index, front, before, text)


def removed(nb: Notebook, index: int) -> Notebook:
    """Without cell `index`; two notes that meet stay two paragraphs of one note."""
    before = [cell.source for cell in nb.cells[:index]]
    if 0 < index < len(nb.cells) - 1 and isinstance(nb.cells[index - 1], Note):
        before[-1] = _set_off(before[-1], line_end(nb.text))
    return _joined(nb, index, index + 1, nb.front, before, "")


def _joined(nb: Notebook, start: int, end: int, front: str, before: list[str], text: str) -> Notebook:
    """Cells `start` to `end` replaced by `text`. ConfigError where that would change how the others are read."""
    before = before or [cell.source for cell in nb.cells[:start]]
    after = [cell.source for cell in nb.cells[end:]]
    done = parse(front + "".join(before) + text + "".join(after), nb.title)
    wanted = [*_fences(nb, 0, start), *_fences(parse(text), 0, None), *_fences(nb, end, None)]
    if _fences(done, 0, None) != wanted:
        raise ConfigError("note", "would swallow the cells after it", "Close its fence (```) or its comment (-->).")
    return done


def _fences(nb: Notebook, start: int, end: int | None) -> list[str]:
    """The sources of the cells that are no notes, without the blank lines after them."""
    return [cell.source.rstrip() for cell in nb.cells[start:end] if not isinstance(cell, Note)]


def _blank(text: str) -> bool:
    return all(is_blank(line) for line in split_lines(text))


def _with_ends(nb: Notebook, text: str) -> str:
    """`text` with the notebook's own line ends, whatever the browser sent."""
    return re.sub(r"\r\n|\r|\n", line_end(nb.text), text)


def _ended(text: str, newline: str) -> str:
    return text if text.endswith(("\n", "\r")) else text + newline


def _set_off(text: str, newline: str) -> str:
    """`text` with a blank line at its end."""
    text = _ended(text, newline)
    return text if is_blank(split_lines(text)[-1]) else text + newline
