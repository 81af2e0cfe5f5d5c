"""Small pieces of HTML. Texts from outside are escaped here."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import streamlit as st

from scalebook.training.tracking import own_metrics


@dataclass(frozen=True)
class Cell:
    """One cell of a table. `html` is already safe; use `text`, `number` or `link` to make one."""

    html: str
    style: str = ""
    """Any of: num, best, dim, wrap, wide."""


def text(content: str, style: str = "") -> Cell:
    return Cell(escape(content), style)


def struck(content: str) -> Cell:
    """What cannot be had, crossed out."""
    return Cell(f"<s>{escape(content)}</s>", "dim")


def number(content: str, *, best: bool = False, own: bool = False) -> Cell:
    """A figure, right-aligned; a dash if `content` is empty. `own`: not computed from all workers' data together."""
    return Cell(
        (marked(content) if own else escape(content)) if content else "–",
        "num best" if best else ("num" if content else "num dim"),
    )


def marked(content: str) -> str:
    """A figure or a name as safe HTML, with a sign and a tooltip: not computed from all workers' data together."""
    return f'{escape(content)} <abbr class="sb-own" title="{escape(own_metrics.WORDS)}">{own_metrics.SIGN}</abbr>'


def link(content: str, url: str) -> Cell:
    return Cell(f'<a href="{escape(url)}">{escape(content)}</a>')


def name(content: str, after: str = "", *, page: bool = False) -> str:
    """The name of a cell, or with `page` of the page, as a heading. `after` is safe HTML beside it."""
    level, style = ("h1", " sb-title") if page else ("h2", "")
    return f'<div class="sb-named"><{level} class="sb-name{style}">{escape(content)}</{level}>{after}</div>'


def swatch(colour: str) -> str:
    return f'<span class="sb-swatch" style="background:{escape(colour)}"></span>'


def chip(word: str, label: str | None = None) -> str:
    """A chip: a state (waiting, running, stopping, finished, failed, stopped, new, stale), or `virtual` for workers."""
    return f'<span class="sb-chip sb-{escape(word)}">{escape(label or word)}</span>'


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]], numeric: Sequence[int] = (), label: str = "") -> str:
    """The HTML of a table; `numeric`: the columns whose title is right-aligned.

    A `label` makes the table focusable, so that it can be scrolled by keyboard even without links in it.
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
    """Draw HTML. `narrow`: in a row, only as wide as its content."""
    st.html(content, width="content" if narrow else "stretch")


def empty(title: str, advice: str) -> None:
    """Draw an empty state: what is missing, and what to do."""
    st.html(f'<div class="sb-empty"><b>{escape(title)}</b>{escape(advice)}</div>')


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Draw figures with their names above them, in one row or in rows of equal length."""

    def named(name: str) -> str:
        return (
            marked(name.removesuffix(f" {own_metrics.SIGN}")) if name.endswith(f" {own_metrics.SIGN}") else escape(name)
        )

    counts = "".join(f"--n{rows}:{-(-len(pairs) // rows)};" for rows in range(1, 7))
    st.html(
        f'<div class="sb-facts" style="{counts}">'
        + "".join(f"<div><span>{named(k)}</span><b>{escape(v)}</b></div>" for k, v in pairs)
        + "</div>"
    )
