r"""Formulas of notes, `$x^2$` and `$$\sum_i x_i$$`, drawn by matplotlib's mathtext as SVG outlines: no font, no script.

A dollar begins one as it does on the notebook's page: a run of them ends at the next run of as many.
"""

import re
import threading
from functools import lru_cache
from html import escape
from itertools import takewhile
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

LONGEST: Final = 1_000
"""Characters; what is longer stands as it is written."""
EM: Final = 100.0
"""Units of a drawing in the height of a letter's box."""
FENCE: Final = re.compile(r"\${2,}")
_ONE: Final = threading.Lock()
"""Mathtext has one parser, with a state."""
CODES: Final = {1: "M", 2: "L", 3: "Q", 4: "C"}


def add_formulas(parser: MarkdownIt) -> None:
    """Let the parser know both kinds."""
    parser.inline.ruler.after("backticks", "formula", _inline)
    parser.block.ruler.before("fence", "formulas", _block, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.add_render_rule("formula", lambda _, tokens, index, *_more: drawn(tokens[index].content))
    parser.add_render_rule(
        "formulas", lambda _, tokens, index, *_more: f'<p class="formula">{drawn(tokens[index].content)}</p>\n'
    )


@lru_cache(maxsize=1000)
def drawn(formula: str) -> str:
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
        (one for one in re.compile(r"\$+").finditer(state.src, run.end(), state.posMax) if one.group() == run.group()),
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
    within = takewhile(lambda at: state.sCount[at] >= state.blkIndent or state.isEmpty(at), range(first + 1, last))
    end = next((at for at in within if _line(state, at).strip() == fence.group()), None)
    if end is None:
        return False
    if not silent:
        token = state.push("formulas", "", 0)
        inner = [line[fence.end() :], *(_line(state, at) for at in range(first + 1, end))]
        token.content, token.map = "\n".join(inner), [first, end + 1]
        state.line = end + 1
    return True


def _line(state: StateBlock, at: int) -> str:
    return state.src[state.bMarks[at] + state.tShift[at] : state.eMarks[at]]
