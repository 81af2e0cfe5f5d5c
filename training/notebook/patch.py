"""Change some values of a YAML text, or the source of some cells, and leave every other character as it stands."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ruamel.yaml.nodes import CollectionNode, MappingNode, Node

from scalebook.training.base import ConfigError
from scalebook.training.base.files import yaml, yaml_flow
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
        raise ConfigError("note", "would include the cells that follow", "Close the fence (```) or the comment (-->).")
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


WIDTH: Final = 110
"""Columns; a mapping that fits is written on one line, `{class_path: ..., init_args: {...}}`."""


@dataclass(frozen=True)
class Edit:
    """Replace the characters from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


def patch(text: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """`text`, which reads as `old`, changed so that it reads as `new`; None where that cannot be done in place.

    Values that changed are written over; new keys go behind the last key of their mapping; keys that are gone take
    along the comment on their line and the comment lines right above them. Line ends must be LF.
    """
    if yaml_flow.same(old, new):
        return text
    try:
        root = yaml.compose(text)
        edits = list(_mapping(text, root, old, new)) if isinstance(root, MappingNode) else []
        done = _apply(text, edits)
        return done if yaml_flow.same(yaml.load(done), new) else None
    except (ConfigError, _NotInPlace):
        return None


class _NotInPlace(Exception):
    """The text uses something (anchors, merged keys) under which characters and values do not correspond."""


def _apply(text: str, edits: list[Edit]) -> str:
    # of two that insert at one place, the later one belongs to the outer mapping and comes behind
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    for edit in ordered[::-1]:
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _mapping(text: str, node: MappingNode, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Edit]:
    entries = [(key.value, key, value) for key, value in node.value]
    if {name for name, _, _ in entries} != set(old) or node.anchor:
        raise _NotInPlace
    remaining = [name for name in old if name in new]
    if not remaining or not entries:
        raise _NotInPlace
    for name, key, value in entries:
        if name not in new:
            yield _removal(text, node, [item[0] for item in entries].index(name), remaining)
        elif not yaml_flow.same(old[name], new[name]):
            yield from _change(text, node, key, value, old[name], new[name])
    if added := {name: value for name, value in new.items() if name not in old}:
        yield _addition(text, node, added)


def _change(text: str, parent: MappingNode, key: Node, value: Node, old: Any, new: Any) -> Iterator[Edit]:
    if isinstance(value, MappingNode) and isinstance(old, Mapping) and isinstance(new, Mapping) and set(old) & set(new):
        yield from _mapping(text, value, old, new)
        return
    after_key = text.index(":", key.end_mark.index) + 1
    end = max(_end(text, value), after_key)
    column = key.start_mark.column
    short = " " + yaml_flow.flow(new)
    fits = column + len(yaml_flow.key_text(str(key.value))) + 1 + len(short) <= WIDTH
    if parent.flow_style or not isinstance(new, Mapping) or not new or fits:
        yield Edit(after_key, end, short)
        return
    yield Edit(after_key, end, "")
    line_end = _line_end(text, end)
    yield Edit(line_end, line_end, "\n" + yaml_flow.block(new, column + 2).rstrip("\n"))


def _removal(text: str, node: MappingNode, index: int, remaining: list[str]) -> Edit:
    key, value = node.value[index]
    if node.flow_style:
        if index + 1 < len(node.value):
            return Edit(key.start_mark.index, node.value[index + 1][0].start_mark.index, "")
        if node.value[index - 1][0].value not in remaining:
            raise _NotInPlace  # two edits would overlap at the comma between them
        return Edit(_end(text, node.value[index - 1][1]), _end(text, value), "")
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[start : key.start_mark.index].strip():
        raise _NotInPlace  # the key does not begin its line
    lines = split_lines(text[:start])
    while lines and lines[-1].startswith(" " * key.start_mark.column + "#"):
        start -= len(lines.pop())
    end = _line_end(text, _end(text, value))
    return Edit(start, min(end + 1, len(text)), "")


def _addition(text: str, node: MappingNode, added: Mapping[str, Any]) -> Edit:
    last = _end(text, node.value[-1][1])
    if node.flow_style:
        return Edit(
            last,
            last,
            "".join(f", {yaml_flow.key_text(name)}: {yaml_flow.flow(value)}" for name, value in added.items()),
        )
    offset = _line_end(text, max(last, node.value[-1][0].end_mark.index))
    column = node.value[0][0].start_mark.column
    if all(isinstance(value, MappingNode) and value.flow_style for _, value in node.value):  # one line each, as they do
        lines = (
            f"\n{' ' * column}{yaml_flow.key_text(name)}: {yaml_flow.flow(value)}" for name, value in added.items()
        )
        return Edit(offset, offset, "".join(lines))
    return Edit(offset, offset, "\n" + yaml_flow.block(added, column).rstrip("\n"))


def _line_end(text: str, offset: int) -> int:
    end = text.find("\n", offset)
    return len(text) if end < 0 else end


def _end(text: str, node: Node) -> int:
    """Behind the last character of a value. A block's own end mark lies behind the comments that follow it."""
    if node.anchor:
        raise _NotInPlace
    if isinstance(node, CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        key, value = last if isinstance(last, tuple) else (None, last)
        return max(_end(text, value), key.end_mark.index + 1 if key is not None else 0)
    start: int = node.start_mark.index
    return start + len(text[start : node.end_mark.index].rstrip())
