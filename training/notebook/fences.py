"""Finds the fenced code blocks of a Markdown text, and what they claim to be."""

import difflib
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, cast, get_args

from markdown_it import MarkdownIt
from markdown_it.token import Token

from scalebook.training.notebook.cells import Kind
from scalebook.training.notebook.lines import split_lines

CLAIM: Final = re.compile(r"yaml\s+(experiment|comparison|search|claim|answer)=(.*)", re.DOTALL)
NEAR: Final = re.compile(r"(ya?ml)?[\s:{]*([a-z_-]{1,40})\s*([=:]?)\s*(.*)", re.DOTALL | re.IGNORECASE)
"""What may have been meant as a cell's head: `yml`, a kind, and a name."""
NAME: Final = re.compile(r"[\w.+-]+")
NAME_REMEDY: Final = "Use letters, digits, `-`, `_`, `.` and `+`, without spaces."
LONGEST_NAME: Final = 100
"""Characters of a name that is given in the browser; a file may have a longer one."""


@dataclass(frozen=True)
class Fence:
    """One fence that claims to be a cell. Lines are indices into the text's lines, `end` exclusive."""

    start: int
    end: int
    kind: Kind
    name: str
    """As written; it matches `NAME` in a cell that is not broken."""
    body: str
    """The YAML, with LF ends and without the fence's own indentation; its first line is line `start + 1`."""
    closed: bool


def fences(text: str) -> list[Fence]:
    """The claiming fences at the top level of `text`: not those in quotes, lists, comments or other fences."""
    lines = split_lines(text)
    fences_ = []
    for token in _tokens(text):
        claim = CLAIM.fullmatch(token.info.strip()) if token.type == "fence" and token.level == 0 else None
        if claim and token.map:
            start, end = token.map[0], min(token.map[1], len(lines))
            closed = end - start > 1 and _closes(lines[end - 1], token.markup)
            kind = cast(Kind, claim.group(1))
            fences_.append(Fence(start, end, kind, claim.group(2).strip(), token.content, closed))
    return fences_


def misspelt(text: str) -> list[tuple[int, str, str]]:
    """The fences at the top level of `text` that are no cells and look as if they were meant as such: the line's index,
    the head as written, and as it is right."""
    found = []
    for token in _tokens(text):
        head = token.info.strip()
        if token.type != "fence" or token.level or not token.map or CLAIM.fullmatch(head):
            continue
        near = NEAR.fullmatch(head)
        if near is None or not (near.group(1) or near.group(3)):  # another language
            continue
        kinds = difflib.get_close_matches(near.group(2).lower(), get_args(Kind), 1, cutoff=0.7)
        if kinds:
            found.append((token.map[0], head, f"yaml {kinds[0]}={near.group(4).rstrip('} ') or 'NAME'}"))
    return found


def comments(text: str) -> list[tuple[int, int, str]]:
    """The HTML comments that stand by themselves at the top level of `text`: first line, line behind the last, text."""
    return [
        (token.map[0], token.map[1], token.content.strip())
        for token in _tokens(text)
        if token.type == "html_block" and token.level == 0 and token.map and token.content.startswith("<!--")
    ]


def first_heading(text: str) -> str | None:
    """The text of the first top-level `#` heading, as written."""
    tokens = _tokens(text)
    return next(
        (_content(tokens, n) for n, token in enumerate(tokens) if token.type == "heading_open" and token.tag == "h1"),
        None,
    )


def _content(tokens: list[Token], heading: int) -> str | None:
    return tokens[heading + 1].content.strip() or None


def _closes(line: str, markup: str) -> bool:
    """CommonMark: at most three spaces, at least as many of the same characters, nothing after them."""
    return re.fullmatch(rf" {{0,3}}{re.escape(markup[0])}{{{len(markup)},}}[ \t]*", line.rstrip("\r\n")) is not None


@lru_cache(maxsize=1)
def _tokens(text: str) -> list[Token]:
    """Of the text that was read last: its fences and its heading are asked for in turn. For reading only."""
    return _blocks().parse(text)


@cache
def _blocks() -> MarkdownIt:
    """A CommonMark parser that finds blocks and leaves what stands inside a line alone."""
    parser = MarkdownIt("commonmark")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser
