"""A chart on a page: our template, and above it what it can be downloaded as (`chart_files.js`)."""

import plotly.graph_objects as go
import streamlit as st


def draw(figure: go.Figure, key: str, alt: str) -> None:
    """`alt` is what a screen reader says of it."""
    config = {"displaylogo": False, "displayModeBar": True, "modeBarButtons": [["toImage"]], "responsive": True}
    st.plotly_chart(figure, theme=None, key=key, alt=alt, config=config)


def preload() -> None:
    """Let the browser load the chart library (1 s) while a form is filled in, so that the first curve comes at once."""
    with st.container(key="preload"):
        draw(go.Figure(), "preload-chart", "nothing")
