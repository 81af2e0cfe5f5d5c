"""Change some values of a YAML text and leave every other character, comments above all, as it stands."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ruamel.yaml.nodes import CollectionNode, MappingNode, Node

from scalebook.training.errors import ConfigError
from scalebook.training.files import yaml
from scalebook.training.files.flow import block, flow, key_text, same
from scalebook.training.notebook.lines import split_lines

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
    if same(old, new):
        return text
    try:
        root = yaml.compose(text)
        edits = list(_mapping(text, root, old, new)) if isinstance(root, MappingNode) else []
        done = _apply(text, edits)
        return done if same(yaml.load(done), new) else None
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
    kept = [name for name in old if name in new]
    if not kept or not entries:
        raise _NotInPlace
    for name, key, value in entries:
        if name not in new:
            yield _removal(text, node, [item[0] for item in entries].index(name), kept)
        elif not same(old[name], new[name]):
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
    short = " " + flow(new)
    fits = column + len(key_text(str(key.value))) + 1 + len(short) <= WIDTH
    if parent.flow_style or not isinstance(new, Mapping) or not new or fits:
        yield Edit(after_key, end, short)
        return
    yield Edit(after_key, end, "")
    line_end = _line_end(text, end)
    yield Edit(line_end, line_end, "\n" + block(new, column + 2).rstrip("\n"))


def _removal(text: str, node: MappingNode, at: int, kept: list[str]) -> Edit:
    key, value = node.value[at]
    if node.flow_style:
        if at + 1 < len(node.value):
            return Edit(key.start_mark.index, node.value[at + 1][0].start_mark.index, "")
        if node.value[at - 1][0].value not in kept:
            raise _NotInPlace  # two edits would overlap at the comma between them
        return Edit(_end(text, node.value[at - 1][1]), _end(text, value), "")
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
        return Edit(last, last, "".join(f", {key_text(name)}: {flow(value)}" for name, value in added.items()))
    at = _line_end(text, max(last, node.value[-1][0].end_mark.index))
    column = node.value[0][0].start_mark.column
    if all(isinstance(value, MappingNode) and value.flow_style for _, value in node.value):  # one line each, as they do
        lines = (f"\n{' ' * column}{key_text(name)}: {flow(value)}" for name, value in added.items())
        return Edit(at, at, "".join(lines))
    return Edit(at, at, "\n" + block(added, column).rstrip("\n"))


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
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
