"""Small pieces of HTML; every text that comes from outside is escaped here and nowhere else."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import streamlit as st

from scalebook.training.tracking.own_metrics import SIGN, WORDS


@dataclass(frozen=True)
class Cell:
    """One cell of a table. `html` is already safe; use `text`, `number` or `link` to make one."""

    html: str
    style: str = ""
    """Any of: num, best, dim, wrap."""


def text(content: str, style: str = "") -> Cell:
    return Cell(escape(content), style)


def number(content: str, *, best: bool = False, own: bool = False) -> Cell:
    """A figure, right-aligned; a dash where there is none. `own`: not of all workers' data together."""
    return Cell(
        (marked(content) if own else escape(content)) if content else "–",
        "num best" if best else ("num" if content else "num dim"),
    )


def marked(content: str) -> str:
    """A figure or a name, as safe HTML, with the sign that it is not of all workers' data together, and a tooltip."""
    return f'{escape(content)} <abbr class="sb-own" title="{escape(WORDS)}">{SIGN}</abbr>'


def link(content: str, url: str, colour: str | None = None) -> Cell:
    return Cell(f'{swatch(colour) if colour else ""}<a href="{escape(url)}">{escape(content)}</a>')


def name(content: str, after: str = "", *, page: bool = False) -> str:
    """The name of a cell as a heading, or of all the page; `after` stands beside it, and is safe HTML."""
    level, style = ("h1", " sb-title") if page else ("h2", "")
    return f'<div class="sb-named"><{level} class="sb-name{style}">{escape(content)}</{level}>{after}</div>'


def swatch(colour: str) -> str:
    return f'<span class="sb-swatch" style="background:{escape(colour)}"></span>'


def chip(word: str, label: str | None = None) -> str:
    """A state: waiting, running, stopping, finished, failed, stopped, new or stale; or `virtual`, of workers."""
    return f'<span class="sb-chip sb-{escape(word)}">{escape(label or word)}</span>'


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]], numeric: Sequence[int] = (), label: str = "") -> str:
    """A table of figures; `numeric` are the columns whose head is right-aligned too.

    A `label` makes it a stop for the keyboard, so that it can be moved sideways where nothing in it can be reached.
    """
    stop = f' tabindex="0" role="region" aria-label="{escape(label)}"' if label else ""
    heads = "".join(
        f'<th class="num">{escape(column)}</th>' if i in numeric else f"<th>{escape(column)}</th>"
        for i, column in enumerate(head)
    )
    body = "".join(
        "<tr>" + "".join(f'<td class="{cell.style}">{cell.html}</td>' for cell in row) + "</tr>" for row in rows
    )
    rows_of = f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="sb-scroll"{stop}><table class="sb">{rows_of}</table></div>'


def draw(content: str, *, narrow: bool = False) -> None:
    """`narrow`: in a row, no wider than its words."""
    st.html(content, width="content" if narrow else "stretch")


def empty(title: str, advice: str) -> None:
    """What a view says when it has nothing to show: what it will show, and what to do for that."""
    st.html(f'<div class="sb-empty"><b>{escape(title)}</b>{escape(advice)}</div>')


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Figures with their names above them, in one row, or in rows of equally many."""

    def named(name: str) -> str:
        return marked(name.removesuffix(f" {SIGN}")) if name.endswith(f" {SIGN}") else escape(name)

    counts = "".join(f"--n{rows}:{-(-len(pairs) // rows)};" for rows in range(1, 7))
    st.html(
        f'<div class="sb-facts" style="{counts}">'
        + "".join(f"<div><span>{named(k)}</span><b>{escape(v)}</b></div>" for k, v in pairs)
        + "</div>"
    )
