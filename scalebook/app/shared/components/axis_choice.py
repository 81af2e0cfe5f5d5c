"""Against what curves are drawn: one choice for all charts of a page, remembered in the address."""

import streamlit as st

from scalebook.training.notebook.cells import Axis
from scalebook.training.notebook.rows import AXES


def draw() -> tuple[Axis, bool]:
    """The axis (`updates`, `samples` or `seconds`), and whether the metric is on a logarithmic scale."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        axis = st.segmented_control(
            "Against",
            AXES,
            default=AXES[0],
            required=True,
            key="x",
            bind="query-params",
            label_visibility="collapsed",
        )
        log_y = st.toggle("Log scale", key="log", bind="query-params")
    return axis, log_y
