"""Another title for a notebook: where its title stands, and nowhere else."""

import re

from scalebook.training.errors import ConfigError
from scalebook.training.files import yaml
from scalebook.training.files.flow import flow
from scalebook.training.notebook.cells import Note, Notebook
from scalebook.training.notebook.front import BYTE_ORDER_MARK, block, front_problem, front_title
from scalebook.training.notebook.lines import line_end, split_lines
from scalebook.training.notebook.parse import parse
from scalebook.training.notebook.patch import patch, replaced


def retitled(nb: Notebook, title: str) -> Notebook:
    """`nb` called `title`: in its front matter, in the `#` heading that it is called by, or in new front matter.

    ConfigError where its front matter cannot be read, or cannot be changed in place.
    """
    if title == nb.title:
        return nb
    if problem := front_problem(nb.front):
        raise ConfigError("front matter", problem[0].message, "Fix it in the file first.")
    changed = None
    if front_title(nb.front) is None and re.fullmatch(r"[^\n#]*\S", title):
        changed = _in_heading(nb, title)
    if changed is None:
        changed = parse(_front(nb, title) + "".join(cell.source for cell in nb.cells), nb.title)
    if changed.title != title or len(changed.cells) != len(nb.cells):
        raise ConfigError("title", f"cannot be {title!r} here", "Choose another one, or write it into the file.")
    return changed


def _in_heading(nb: Notebook, title: str) -> Notebook | None:
    """None where no heading says it on one line of its own."""
    heading = re.compile(rf"(?m)^( {{0,3}}#[ \t]+){re.escape(nb.title)}[ \t]*$")
    for index, cell in enumerate(nb.cells):
        if isinstance(cell, Note) and (match := heading.search(cell.source)):
            text = cell.source[: match.start()] + match[1] + title + cell.source[match.end() :]
            changed = replaced(nb, index, text)
            return changed if changed.title == title else None
    return None


def _front(nb: Notebook, title: str) -> str:
    """The front matter with this title, its other keys and comments as they are."""
    newline, front = line_end(nb.text), nb.front
    mark = BYTE_ORDER_MARK if front.startswith(BYTE_ORDER_MARK) else ""
    written = block(front)
    if not written:
        return f"{mark}---{newline}title: {flow(title)}{newline}---{newline}{front.removeprefix(mark)}"
    inner = written.removeprefix("\n").replace("\r\n", "\n")
    old = yaml.load(inner) or {}
    lines = split_lines(front.removeprefix(mark))
    behind = lines[1 + len(split_lines(inner)) :]
    new = patch(inner, old, {**old, "title": title}) if old else None
    new = f"title: {flow(title)}\n{inner}" if new is None and "title" not in old else new
    if new is None:
        raise ConfigError("title", "cannot be changed in place", "Write it into the file.")
    return mark + lines[0] + new.replace("\n", newline) + "".join(behind)
