"""Renders what people wrote as safe HTML: no HTML of theirs, no scripts, nothing fetched from anywhere."""

import re
import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from html import escape
from itertools import takewhile
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

LONGEST: Final = 1_000
"""Characters of the longest formula that is drawn; a longer one is shown as it is written."""
EM: Final = 100.0
"""Units of a drawing in the height of a letter's box."""
FENCE: Final = re.compile(r"\${2,}")
_ONE: Final = threading.Lock()
"""Mathtext has one parser, with a state."""
CODES: Final = {1: "M", 2: "L", 3: "Q", 4: "C"}


def add_formulas(parser: MarkdownIt) -> None:
    r"""Let the parser know formulas of both kinds, `$x^2$` and `$$\sum_i x_i$$`.

    Matplotlib's mathtext draws them as SVG outlines: no font, no script. A dollar begins one as it does on the
    notebook's page: a run of them ends at the next run of as many.
    """
    parser.inline.ruler.after("backticks", "formula", _inline)
    parser.block.ruler.before("fence", "formulas", _block, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.add_render_rule("formula", lambda _, tokens, index, *_more: formula_svg(tokens[index].content))
    parser.add_render_rule(
        "formulas", lambda _, tokens, index, *_more: f'<p class="formula">{formula_svg(tokens[index].content)}</p>\n'
    )


@lru_cache(maxsize=1000)
def formula_svg(formula: str) -> str:
    """The formula as an `<svg>` on the line of the text; as code where mathtext cannot draw it."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    words = " ".join(formula.split())
    as_code = f'<code class="formula">{escape(words)}</code>'
    if not words or len(words) > LONGEST:
        return as_code
    font = FontProperties(math_fontfamily="cm", size=EM)
    try:
        with _ONE:
            vertices, codes = text_to_path.get_text_path(font, f"${words}$", ismath=True)
            width, height, depth = text_to_path.get_text_width_height_descent(f"${words}$", font, ismath=True)
    except (ValueError, RecursionError):  # of mathtext: what it does not know, or that is nested too deep
        return as_code
    box = f"0 {depth - height:.0f} {max(width, 1):.0f} {max(height, 1):.0f}"
    size = f"width:{width / EM:.3f}em;height:{height / EM:.3f}em;vertical-align:{-depth / EM:.3f}em"
    return (
        f'<svg class="formula" role="img" aria-label="{escape(words)}" viewBox="{box}" style="{size}">'
        f'<path fill="currentColor" d="{_path(vertices, codes)}"/></svg>'
    )


def _path(vertices: object, codes: object) -> str:
    """SVG's `d` of a matplotlib path, whose y axis points up."""
    from matplotlib.path import Path

    parts = []
    for points, code in Path(vertices, codes).iter_segments(simplify=False, curves=True):  # type: ignore[arg-type]
        if code == Path.CLOSEPOLY:
            parts.append("Z")
        else:
            pairs = zip(points[::2], points[1::2], strict=True)
            parts.append(CODES[int(code)] + " ".join(f"{x:.1f} {-y:.1f}" for x, y in pairs))
    return "".join(parts)


def _inline(state: StateInline, silent: bool) -> bool:
    """A run of dollars, and up to the next run of as many."""
    run = re.compile(r"\$+").match(state.src, state.pos, state.posMax)
    if run is None:
        return False
    end = next(
        (
            closing
            for closing in re.compile(r"\$+").finditer(state.src, run.end(), state.posMax)
            if closing.group() == run.group()
        ),
        None,
    )
    if not silent:
        token = state.push("formula" if end else "text", "", 0)
        token.content = state.src[run.end() : end.start()] if end else run.group()
    state.pos = end.end() if end else run.end()
    return True


def _block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Lines between two that begin with `$$`."""
    line = _line(state, first)
    fence = FENCE.match(line)
    if fence is None or state.is_code_block(first) or "$" in line[fence.end() :]:
        return False
    within = takewhile(
        lambda number: state.sCount[number] >= state.blkIndent or state.isEmpty(number), range(first + 1, last)
    )
    end = next((number for number in within if _line(state, number).strip() == fence.group()), None)
    if end is None:
        return False
    if not silent:
        token = state.push("formulas", "", 0)
        inner = [line[fence.end() :], *(_line(state, number) for number in range(first + 1, end))]
        token.content, token.map = "\n".join(inner), [first, end + 1]
        state.line = end + 1
    return True


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]


SCHEME: Final = re.compile(r"\s*([a-z][a-z0-9+.-]*):", re.IGNORECASE)
FOLLOWED: Final = ("http", "https", "mailto")
"""Where a link may lead, besides into the page and to what lies beside it."""
PICTURE: Final = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*")
MARKUP: Final = re.compile(r"[*_\[`|<&!>~]")
MOST_MARKUP: Final = 30_000
MOST_DOLLARS: Final = 2_000
"""Most dollars of one note: a formula takes some 3 ms."""
MOST_BRACKETS: Final = 5_000
"""Most brackets of one note: the parser takes a time that grows with their square, 0.03 s for these."""
DEEPEST: Final = 40
LINKED: Final = "linked"


def rendered(source: str) -> str:
    """The Markdown (CommonMark, tables, strikethrough, formulas) as HTML. Raw HTML is shown as text.

    A picture within the text (`data:`) is drawn; any other is a link, since it is not part of the file. Links lead to
    http, https and mailto only. A note with more markup than the limits above is shown as it is written.
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
