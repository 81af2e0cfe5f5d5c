"""What people wrote, as HTML that nobody need trust: no HTML of theirs, no scripts, nothing fetched from anywhere."""

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from scalebook.training.export.formulas import add_formulas

SCHEME: Final = re.compile(r"\s*([a-z][a-z0-9+.-]*):", re.IGNORECASE)
FOLLOWED: Final = ("http", "https", "mailto")
"""Where a link may lead, besides into the page and to what lies beside it."""
PICTURE: Final = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*")
MARKUP: Final = re.compile(r"[*_\[`|<&!>~]")
MOST_MARKUP: Final = 30_000
MOST_DOLLARS: Final = 2_000
"""Of one note: a formula takes some 3 ms."""
MOST_BRACKETS: Final = 5_000
"""Of one note, in characters: the parser takes a time that grows with the square of the brackets, 0.03 s for these."""
DEEPEST: Final = 40
LINKED: Final = "linked"


def rendered(source: str) -> str:
    """The Markdown (CommonMark, tables, strikethrough, formulas) as HTML. Raw HTML stands there as text.

    A picture within the text (`data:`) is drawn; any other is a link, since it is not part of the file. Links lead to
    http, https and mailto only. A note that is all markup, beyond the limits above, stands as it is written.
    """
    markup = sum(1 for _ in MARKUP.finditer(source))
    if source.count("[") > MOST_BRACKETS or source.count("$") > MOST_DOLLARS or markup > MOST_MARKUP:
        return f"<pre>{escape(source)}</pre>"
    return str(_parser().render(source))


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST}).enable(["table", "strikethrough"])
    parser.validateLink = _followed  # type: ignore[method-assign]  # how the library says to do it
    parser.core.ruler.push("linked", _mark_linked)
    add_formulas(parser)
    parser.add_render_rule("image", _picture)
    parser.add_render_rule("link_open", _link)
    return parser


def _followed(url: str) -> bool:
    """Whether a link, or a picture, may name `url`."""
    plain = re.sub(r"[\x00-\x20]", "", url)  # browsers leave these out before they look for a scheme
    scheme = SCHEME.match(plain)
    return scheme is None or scheme.group(1).lower() in FOLLOWED or PICTURE.fullmatch(plain) is not None


def _picture(_: RendererHTML, tokens: Sequence[Token], index: int, *_more: Any) -> str:
    token = tokens[index]
    url, words = str(token.attrs.get("src", "")), escape(token.content)
    if PICTURE.fullmatch(url):
        return f'<img src="{escape(url)}" alt="{words}">'
    named = f"picture: {words or escape(url)}"
    return named if token.meta.get(LINKED) else f'<a href="{escape(url)}" rel="noopener noreferrer">{named}</a>'


def _mark_linked(state: StateCore) -> None:
    """Of each picture whether it stands in a link, which cannot hold another."""
    for block in state.tokens:
        depth = 0
        for token in block.children or []:
            depth += token.nesting if token.type in ("link_open", "link_close") else 0
            if token.type == "image":
                token.meta[LINKED] = depth > 0


def _link(_: RendererHTML, tokens: Sequence[Token], index: int, *_more: Any) -> str:
    url = str(tokens[index].attrs.get("href", ""))
    if PICTURE.fullmatch(url):
        return "<a>"
    title = tokens[index].attrs.get("title")
    title_attribute = f' title="{escape(str(title))}"' if title else ""
    return f'<a href="{escape(url)}"{title_attribute} rel="noopener noreferrer">'
