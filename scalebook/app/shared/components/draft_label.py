"""Beside what was typed and not saved: that it is a draft, how old it is, and a way to be rid of it."""

from html import escape
from typing import Literal

import streamlit as st

from scalebook.app.shared.components import html
from scalebook.app.shared.services.words import ago
from scalebook.training.errors import one_line

SHOWN = 120  # characters of the text


def draw(left_at: float, what: str, key: str = "", text: str = "") -> Literal["continue", "discard"] | None:
    """What is to become of it. `left_at` in seconds since the epoch; a `text` that is not on the page is quoted."""
    with st.container(border=bool(text), key=f"draft-label-{key}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(
                f":material/edit_note: **Draft** of {what}, last changed {ago(left_at)}, not saved to the notebook."
            )
            goes_on = bool(text) and st.button("Continue", key=f"continue-draft-{key}")
            discarded = st.button("Discard", type="tertiary", key=f"discard-draft-{key}")
        if text:
            html.draw(f'<div class="sb-summary">{escape(one_line(text.strip(), SHOWN))}</div>')
    return "continue" if goes_on else "discard" if discarded else None
