"""The chart library is loaded while a form is filled in, after the form itself has been drawn."""

import streamlit as st

from scalebook.app import state
from scalebook.app.shared.components import chart_view

AFTER_S = 2.0


def charts() -> None:
    """Load the chart library at the end of a page, once: the first curve after Run then comes 1 s earlier."""
    if state.just_entered():
        state.take("preload", False)
    st.fragment(_tick, run_every=AFTER_S)()


def _tick() -> None:
    if state.recall("preload", False):
        chart_view.preload()
    state.remember("preload", True)
