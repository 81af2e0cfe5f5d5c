"""The browser loads the chart library while a form is filled in: the first curve after Run then comes 1 s earlier.

By itself, not by a fragment that ticks: a tick that is sent before Run has led to another page is answered after, for
the former page, and Streamlit may end with a blank one ("Bad delta path index").
"""

import streamlit as st

from scalebook.app.serving import early

AFTER_S = 2.0


def charts() -> None:
    """At the end of a page, for when the form itself has been drawn."""
    library = early.library(early.CHARTS)
    if library is not None:
        load = f"setTimeout(() => import('/static/js/{library.name}'), {1000 * AFTER_S:.0f})"
        with st.container(key="preload"):
            st.html(f"<script>{load}</script>", unsafe_allow_javascript=True)
