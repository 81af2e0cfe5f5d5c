"""How curves are drawn: one choice for all charts of a page, remembered in the address."""

from collections.abc import Collection
from typing import NamedTuple

import streamlit as st

from scalebook.training.notebook.cells import Axis
from scalebook.training.notebook.rows import AXES
from scalebook.training.tracking.names import axis_words

MOST_SMOOTH = 0.99


class CurveLook(NamedTuple):
    """Against what, whether the metric is on a logarithmic scale, and the weight of the past in a moving average."""

    axis: Axis
    log_y: bool
    smoothing: float
    x_title: str
    """What the axis is called: seconds of virtual workers are called so."""


def draw(simulated: Collection[bool] = ()) -> CurveLook:
    """The axis (`updates`, `samples` or `seconds`), the scale, the smoothing. `simulated`: of each run."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        axis = st.segmented_control(
            "X axis",
            AXES,
            default=AXES[0],
            required=True,
            key="x",
            bind="query-params",
            label_visibility="collapsed",
        )
        log_y = st.toggle("Log scale", key="log", bind="query-params")
        smoothing = st.slider(
            "Smoothing", 0.0, MOST_SMOOTH, 0.0, 0.01, format="%.2f", key="smooth", bind="query-params", width=200,
            help="Weight of earlier points in an exponential moving average. The logged curve stays visible, faint.",
        )  # fmt: skip
    return CurveLook(axis, log_y, float(smoothing), axis_words(axis, simulated))
