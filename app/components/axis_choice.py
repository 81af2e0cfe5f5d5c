"""Against what curves are drawn: one choice for all charts of a page, remembered in the address."""

import streamlit as st

from training.tracking import names


def draw() -> tuple[str, bool]:
    """The axis (`updates`, `samples` or `seconds`), and whether the metric is on a logarithmic scale."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        axis = st.segmented_control(
            "Against",
            names.AXES,
            default=names.UPDATES,
            required=True,
            key="x",
            bind="query-params",
            label_visibility="collapsed",
        )
        log_y = st.toggle("Log scale", key="log")
    return axis, log_y
