"""A judged claim: what is claimed, the verdict, and the figures that it follows from."""

from html import escape

import streamlit as st

from scalebook.app.shared import html
from scalebook.training.claims import table
from scalebook.training.claims.judging import Judgement
from scalebook.training.tracking.own_metrics import SIGN


def title(judgement: Judgement) -> str:
    """Name and verdict, and that by what was locked where the claim has changed since."""
    locked, word = judgement.locked, judgement.verdict
    chips = html.chip(word.replace(" ", "-"), word)
    if locked is not None:
        chips += " " + html.chip(locked.verdict.replace(" ", "-"), f"as locked: {locked.verdict}")
    return html.name(judgement.cell.name, chips)


def body(judgement: Judgement) -> None:
    """The claim in words, a row for each side, and what the figures do not say."""
    html.draw(f'<div class="sb-claim">{escape(judgement.statement)}</div>')
    numeric = table.numeric(judgement)
    rows = [
        [_number(cell) if i in numeric else html.text(cell) for i, cell in enumerate(row)]
        for row in table.cells(judgement)
    ]
    html.draw(html.table(table.head(judgement), rows, numeric))
    for remark in table.remarks(judgement):
        st.caption(remark)


def _number(cell: str) -> html.Cell:
    figure = cell.removesuffix(f" {SIGN}")
    return html.number(figure, own=figure != cell)
