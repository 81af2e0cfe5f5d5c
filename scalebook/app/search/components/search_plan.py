"""What stands beside the set-up of a search: what it would do, its example points, the cell, the command."""

from collections.abc import Sequence
from typing import Literal

import streamlit as st

from scalebook.app.search.services.search_setup import Example
from scalebook.app.shared.components import html
from scalebook.training.errors import Problem

Intent = Literal["start", "save"]


def buttons(blocked: bool) -> Intent | None:
    """Start search and Save."""
    intent: Intent | None = None
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Start search", type="primary", icon=":material/play_arrow:", disabled=blocked, key="search-start",
                     help="Writes the search into the notebook, below its experiment, and starts it."):  # fmt: skip
            intent = "start"
        if st.button("Save", icon=":material/save:", key="search-save", disabled=blocked,
                     help="Writes the search into the notebook; it can be run from there."):  # fmt: skip
            intent = "save"
    return intent


def about(text: str, remark: str) -> None:
    """How many runs, how long."""
    st.markdown(f"**{text}**")
    if remark:
        st.caption(remark)


def problems(found: Sequence[Problem]) -> None:
    for one in found:
        (st.error if one.severity == "error" else st.warning)(str(one))


def examples(found: Sequence[Example]) -> None:
    """Points of the space as they would run: what a batch size becomes, what a rate becomes."""
    if not found:
        return
    html.draw('<div class="sb-eyebrow">Points of this space, as they would run</div>')
    rows: list[list[html.Cell]] = []
    for one in found:
        if one.load is None:
            rows.append([html.text(one.words, "wrap"), html.text(one.problem, "wrap dim")])
            continue
        load = one.load
        sizes = (load.batch_per_worker, load.batch_global, load.batch_effective)
        cells = [html.number("" if size is None else f"{size:,}") for size in sizes]
        rate = load.learning_rate if load.learning_rate_scaled is None else load.learning_rate_scaled
        rows.append(
            [html.text(one.words, "wrap"), *cells, html.number("" if rate is None else f"{float(f'{rate:.3g}'):g}")]
        )
    scaled = any(one.load is not None and one.load.learning_rate_scaled is not None for one in found)
    rate_title = "scaled rate" if scaled else "rate"
    html.draw(html.table(["Point", "per worker", "global", "effective", rate_title], rows, numeric=range(1, 5)))


def text(cell: str, command: str) -> None:
    """The cell as it would be written, and how to run it without a browser."""
    html.draw('<div class="sb-eyebrow">The cell in the notebook</div>')
    st.code(cell, language="yaml", wrap_lines=True)
    html.draw('<div class="sb-eyebrow">Run it without the browser</div>')
    st.code(command, language="bash", wrap_lines=True)
