"""Text in letters of one width, with a button that copies it; of YAML the keys and values are told apart.

Not `st.code`: its library has 1.5 MB, and the browser works 0.5 s on it before it shows the rest of the page.
"""

import re
from html import escape
from typing import Literal

from scalebook.app.shared.components import html

COPY = '<button type="button" class="sb-copy" title="Copy to clipboard" aria-label="Copy to clipboard"></button>'
YAML = re.compile(
    r"""(?P<comment>(?:^|(?<=\s))\#.*$)
    |(?P<key>(?:"[^"\n]*"|'[^'\n]*'|(?!-\s)[^\s\#"'{}\[\],:][^\#"'{}\[\],:\n]*(?::\S[^\#"'{}\[\],:\n]*)*)(?=:(?:\s|$)))
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*')
    |(?<![\w./:-])(?:(?P<number>[-+]?\.?\d[\d_.]*(?:[eE][-+]?\d+)?)|(?P<boolean>true|false|null))(?=[\s,\]}]|$)""",
    re.MULTILINE | re.VERBOSE,
)
"""Enough for colours: the text of a block scalar is taken for YAML too."""


def draw(
    text: str, language: Literal["text", "yaml"] = "text", *, height: int | None = None, wrap: bool = False
) -> None:
    """`height` in pixels, beyond which it scrolls; with `wrap` no line is longer than the place is wide."""
    text = text.rstrip("\n")
    style = f' style="max-height:{height}px"' if height else ""
    shown = yaml(text) if language == "yaml" else escape(text)
    body = f'<pre tabindex="0"{style}><code>{shown}</code></pre>'
    html.draw(f'<div class="sb-code{" sb-wrapped" if wrap else ""}">{COPY}{body}</div>')


def yaml(text: str) -> str:
    """Safe HTML."""
    parts, end = [], 0
    for found in YAML.finditer(text):
        parts.append(escape(text[end : found.start()], quote=False))
        parts.append(f'<span class="token {found.lastgroup}">{escape(found.group(), quote=False)}</span>')
        end = found.end()
    return "".join([*parts, escape(text[end:], quote=False)])
