"""Above what is filled with a draft: that it is one, how old it is, and a way to be rid of it."""

import streamlit as st

from scalebook.app.shared.services.words import ago


def draw(left_at: float, what: str) -> bool:
    """Whether it is to be discarded; `left_at` in seconds since the epoch."""
    with st.container(horizontal=True, vertical_alignment="center", key="draft-label"):
        st.caption(
            f":material/edit_note: **Draft** of {what}, last changed {ago(left_at)}. The notebook does not have it yet."
        )
        return st.button("Discard", type="tertiary", key="discard-draft")
