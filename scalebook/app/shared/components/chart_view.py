"""A chart on a page: our template, and above it what it can be downloaded as (`chart_files.js`)."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import plotly.graph_objects as go
import streamlit as st

CONFIG = {"displaylogo": False, "displayModeBar": True, "modeBarButtons": [["toImage"]], "responsive": True}

CARTESIAN = (go.Scatter, go.Bar, go.Contour, go.Heatmap)
"""Traces that have an x and a y axis."""


def draw(figure: go.Figure, key: str, alt: str) -> None:
    """`alt` is what a screen reader says of it."""
    _once(figure)
    st.plotly_chart(figure, theme=None, key=key, alt=alt, config=CONFIG)


def pick(figure: go.Figure, key: str, alt: str) -> int | None:
    """Draw it; the number in `customdata` of the point that was clicked. Plotly lets marks be clicked, but no lines."""
    _once(figure, clickmode="event+select", dragmode="pan")
    event: Any = st.plotly_chart(
        figure, theme=None, key=key, alt=alt, config=CONFIG, on_select="rerun", selection_mode="points"
    )
    clicked = [point["customdata"] for point in event.selection.points if point.get("customdata") is not None]
    number = clicked[0] if clicked else None
    return None if number is None else int(number[0] if isinstance(number, list) else number)


def _once(figure: go.Figure, **told: str) -> None:
    """Make that Plotly draws it once. Streamlit gives each figure to it twice, and it compares the two, but neither
    data nor templates: so these are told from others by a number, and the template's layout becomes the figure's own.
    What Streamlit would change in between, it is `told` at once."""
    if figure.layout.datarevision is None:
        layout = figure.layout.to_plotly_json()
        look = layout.pop("template", {}).get("layout", {})
        axes = {axis: look.pop(axis, {}) for axis in ("xaxis", "yaxis")}
        if any(isinstance(trace, CARTESIAN) for trace in figure.data):
            layout = {axis: {} for axis in axes} | layout
        own = {name: _upon(axes[name[:5]], layout[name]) for name in layout if name[:5] in axes}
        revision = sha256(figure.to_json().encode()).hexdigest()[:16]
        # all of it at once: what `update_layout` compares, name by name, takes ten times as long
        figure.layout = _upon(look, layout) | own | told | {"datarevision": revision}
        figure.layout.template = None


def _upon(under: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _upon(under[key], above[key])
        for key in above
        if isinstance(under.get(key), dict) and isinstance(above[key], dict)
    }
    return {**under, **above, **both}
