"""The front matter of a notebook: an optional YAML block between `---` lines at the very beginning."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from scalebook.training.base import ConfigError, Problem
from scalebook.training.base.files import yaml
from scalebook.training.notebook.lines import split_lines

BYTE_ORDER_MARK: Final = "\ufeff"


def split_front(text: str) -> tuple[str, str]:
    """`text` as (front matter, rest). The front takes a byte order mark and the blank lines before the first cell.

    As in pandoc the block begins on the first line, its second line is not blank (else `---` is a rule across the
    page), and `---` or `...` ends it; one that is never ended is no front matter.
    """
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    lines = split_lines(text[len(mark) :])
    end = _end_of_block(lines)
    while end < len(lines) and is_blank(lines[end]):
        end += 1
    front = mark + "".join(lines[:end])
    return front, text[len(front) :]


def front_title(front: str) -> str | None:
    """What `title:` says; None where it says nothing or the block is not YAML."""
    return _read(front)[0]


def front_problem(front: str) -> tuple[Problem, int] | None:
    """What is wrong with the block, and on which line of the file; None where it can be read."""
    return _read(front)[1]


@lru_cache(maxsize=100)
def _read(front: str) -> tuple[str | None, tuple[Problem, int] | None]:
    """Its title, and what is wrong with it on which line."""
    try:
        content = yaml.load(block(front))
    except ConfigError as error:
        where = error.problem.key
        line = int(where.removeprefix("line ")) if where.startswith("line ") else 1
        return None, (error.problem.moved_to("title"), line)
    title = content.get("title") if isinstance(content, Mapping) else None
    return (str(title) if title is not None and str(title).strip() else None), None


def block(front: str) -> str:
    """The YAML between the `---` lines, with one empty line before it, so that line numbers are the file's."""
    lines = split_lines(front.removeprefix(BYTE_ORDER_MARK))
    end = _end_of_block(lines)
    return "\n" + "".join(lines[1 : end - 1]) if end else ""


def is_blank(line: str) -> bool:
    """Whether CommonMark sees nothing in it: spaces and tabs only."""
    return not line.strip(" \t\r\n")


def _end_of_block(lines: list[str]) -> int:
    if len(lines) < 2 or lines[0].rstrip() != "---" or is_blank(lines[1]):
        return 0
    return next((n + 1 for n, line in enumerate(lines) if n and line.rstrip() in ("---", "...")), 0)
