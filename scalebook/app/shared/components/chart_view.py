"""A chart on a page: our template, and above it what it can be downloaded as (`chart_files.js`)."""

from typing import Any

import plotly.graph_objects as go
import streamlit as st

CONFIG = {"displaylogo": False, "displayModeBar": True, "modeBarButtons": [["toImage"]], "responsive": True}


def draw(figure: go.Figure, key: str, alt: str) -> None:
    """`alt` is what a screen reader says of it."""
    st.plotly_chart(figure, theme=None, key=key, alt=alt, config=CONFIG)


def pick(figure: go.Figure, key: str, alt: str) -> int | None:
    """Draw it; the number in `customdata` of the point that was clicked. Plotly lets marks be clicked, but no lines."""
    event: Any = st.plotly_chart(
        figure, theme=None, key=key, alt=alt, config=CONFIG, on_select="rerun", selection_mode="points"
    )
    clicked = [point["customdata"] for point in event.selection.points if point.get("customdata") is not None]
    number = clicked[0] if clicked else None
    return None if number is None else int(number[0] if isinstance(number, list) else number)
