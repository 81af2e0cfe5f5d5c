"""What stands beside the set-up of a search: what it would do, its example points, the cell, the command."""

from collections.abc import Sequence
from typing import Final, Literal

import streamlit as st

from scalebook.app import state
from scalebook.app.search.services.search_setup import Example
from scalebook.app.shared import html
from scalebook.app.shared.widgets import code_block, press_button

Intent = Literal["start", "save"]


KEYS: Final[dict[Intent, str]] = {"start": "search-start", "save": "search-save"}


def buttons(blocked: bool, shown: str) -> Intent | None:
    """Start search and Save; a click that comes with a mistake is told to be none. `shown`: see `state.Clicks`."""
    with st.container(horizontal=True, vertical_alignment="center", key="search-buttons"):
        start = press_button(
            "Start search", KEYS["start"], shown, type="primary", icon=":material/play_arrow:", disabled=blocked,
            help="Adds the search to the notebook, below its experiment, and starts it. Ctrl+Enter",
        )  # fmt: skip
        save = press_button(
            "Save", KEYS["save"], shown, icon=":material/save:", disabled=blocked,
            help="Adds the search to the notebook; run it from there. Ctrl+S",
        )  # fmt: skip
    intent: Intent | None = "start" if start else "save" if save else None
    if intent and blocked:
        state.clicks().settle(KEYS[intent], done=False)
        state.say(f"Not {'started' if start else 'saved'}: fix what is marked in red first.", ":material/error:")
        return None
    return intent


def about(text: str, remark: str) -> None:
    """How many runs, how long."""
    st.markdown(f"**{text}**")
    if remark:
        st.caption(remark)


def examples(listed: Sequence[Example]) -> None:
    """Points of the space as they would run: what a batch size becomes, what a rate becomes."""
    if not listed:
        return
    html.draw('<div class="sb-eyebrow">Sample points, as they would run</div>')
    rows: list[list[html.Cell]] = []
    for example in listed:
        if example.load is None:
            rows.append([html.text(example.words, "wrap"), html.text(example.problem, "wrap dim")])
            continue
        load = example.load
        sizes = (load.batch_per_worker, load.batch_global, load.batch_effective)
        cells = [html.number("" if size is None else f"{size:,}") for size in sizes]
        rate = load.learning_rate if load.learning_rate_scaled is None else load.learning_rate_scaled
        rows.append(
            [html.text(example.words, "wrap"), *cells, html.number("" if rate is None else f"{float(f'{rate:.3g}'):g}")]
        )
    scaled = any(example.load is not None and example.load.learning_rate_scaled is not None for example in listed)
    rate_title = "scaled rate" if scaled else "rate"
    html.draw(html.table(["Point", "per worker", "global", "effective", rate_title], rows, numeric=range(1, 5)))


def text(cell: str, command: str) -> None:
    """The cell as it would be written, and how to run it without a browser."""
    html.draw('<div class="sb-eyebrow">Notebook cell</div>')
    code_block(cell, "yaml", wrap=True)
    html.draw('<div class="sb-eyebrow">Run from the command line</div>')
    code_block(command, wrap=True)
