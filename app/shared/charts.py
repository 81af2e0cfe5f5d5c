"""Charts: one template and palette, figures from plain numbers, and drawing them on a page."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from html import escape
from typing import Any, NamedTuple

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from scalebook.training.notebook import AXES, Axis
from scalebook.training.tracking import names, smooth, thin

PALETTE = ("#12868c", "#dd7a1b", "#7c62b3", "#3f7fd1", "#c4533c", "#5b9a3e", "#bd5695", "#8a7a52", "#4d6b78", "#b09a1a")
"""Ten hues of similar lightness, distinct on light and dark grounds; the first three also for the colour-blind."""
PARTS = {"compute": "#107f85", "wait": "#dd7a1b", "communicate": "#7c62b3", "data": "#9aa3a2"}
LIGHT_PARTS = ("wait", "data")
"""Parts with dark letters; on the others white letters have a contrast of 4.5."""
FONT = (
    "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif, "
    "'Source Sans', sans-serif"
)
"""The font list that Streamlit makes from `theme.font`, so that charts have the page's font."""
UNITS = {"bytes": "B", "seconds": "s", "virtual seconds": "virtual s"}
"""The unit of an axis, if its name is another one."""
POINTS = 600  # more per curve cannot be seen on 1,400 pixels and make the page heavy


@dataclass(frozen=True)
class Series:
    """One line: `x` and `y` of equal length; `low` and `high` draw a band. Equal names share a legend entry."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    faint: bool = False
    """True for a single seed behind the mean, and for the logged curve behind its moving average."""
    low: Sequence[float] = field(default_factory=tuple)
    high: Sequence[float] = field(default_factory=tuple)


@cache
def template(dark: bool) -> go.layout.Template:
    """The look of all charts, with a transparent background."""
    ink, dim, line = ("#e4e8e8", "#98a4a4", "#2b3338") if dark else ("#1c2327", "#66716f", "#e6e8e5")
    axis = {
        "gridcolor": line,
        "linecolor": line,
        "zeroline": False,
        "showline": True,
        "ticks": "",
        "tickfont": {"color": dim, "size": 11.5},
        "title": {"font": {"color": dim, "size": 12}, "standoff": 8},
        "automargin": True,
    }
    layout = go.Layout(
        font={"family": FONT, "size": 12.5, "color": ink},
        title={
            "font": {"size": 13.5, "weight": 600},
            "x": 0,
            "xanchor": "left",
            "xref": "container",
            "y": 1,
            "yanchor": "top",
            "yref": "container",
            "pad": {"l": 4, "t": 9},
        },
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        colorway=PALETTE,
        xaxis=axis,
        yaxis=axis,
        margin={"l": 8, "r": 12, "t": 34, "b": 8},
        hovermode="x unified",
        hoverlabel={
            "bgcolor": "#1d2327" if dark else "#ffffff",
            "bordercolor": line,
            "font": {"color": ink, "family": FONT},
        },
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left", "font": {"color": ink}},
        bargap=0.28,
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": dim, "activecolor": PALETTE[0]},
    )
    return go.layout.Template(layout=layout)


MOST_NUMBERED = 32
"""Workers whose numbers a graph has room for."""


def _figure(dark: bool, height: int, title: str = "") -> go.Figure:
    return go.Figure(
        layout={"template": template(dark), "height": height, "title": {"text": title}, "uirevision": "kept"}
    )


def lines(
    series: Sequence[Series],
    *,
    x_title: str,
    y_title: str = "",
    title: str = "",
    log_y: bool = False,
    smoothing: float = 0.0,
    target: float | None = None,
    dark: bool = False,
    height: int = 320,
) -> go.Figure:
    """A chart of curves over one axis. A curve of one point is a marker, so that a run's first value is visible.

    `smoothing`, a weight below 1, draws the moving average of each curve, with the logged curve faint behind it.
    """
    figure = _figure(dark, height, title)
    named: set[str] = set()
    several = len({curve.name for curve in series}) > 1
    for curve in series:
        if curve.low and curve.high:
            figure.add_trace(_band(curve))
        if smoothing and not curve.faint:
            figure.add_trace(_line(replace(curve, faint=True), x_title, in_legend=False))
            curve = replace(curve, y=smooth(curve.y, smoothing))
        figure.add_trace(_line(curve, x_title, in_legend=several and not curve.faint and curve.name not in named))
        if not curve.faint:
            named.add(curve.name)
    if several and title:
        figure.update_layout(legend={"yref": "container", "y": 0, "yanchor": "bottom"})  # the title is above
    ends = [x for series in series for x in series.x]
    if target is not None and ends and (target > 0 or not log_y):
        figure.add_trace(_target(target, min(ends), max(ends)))
    figure.update_layout(hoverdistance=-1)  # every run is told of, where it was nearest
    figure.update_xaxes(title_text=x_title, rangemode="tozero")
    figure.update_yaxes(title_text=y_title, type="log" if log_y else "linear")
    return figure


def graph(
    sends: Mapping[int, Sequence[int]], looks: Sequence[tuple[str, str]], *, dark: bool = False, height: int = 320
) -> go.Figure:
    """A graph of workers on a circle, with a line where one sends to another. `sends`: to whom each sends; `looks`: of
    each worker its colour, and what is said when the pointer is on it."""
    figure, count = _figure(dark, height), max(len(looks), 1)
    places = [
        (math.sin(2 * math.pi * worker / count), math.cos(2 * math.pi * worker / count)) for worker in range(count)
    ]
    edges = sorted({(min(one, other), max(one, other)) for one, others in sends.items() for other in others})
    figure.add_trace(
        go.Scatter(
            x=[x for edge in edges for x in (places[edge[0]][0], places[edge[1]][0], None)],
            y=[y for edge in edges for y in (places[edge[0]][1], places[edge[1]][1], None)],
            mode="lines",
            line={"color": "#8a949b", "width": 1},
            opacity=0.5,
            hoverinfo="skip",
            showlegend=False,
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[x for x, _ in places],
            y=[y for _, y in places],
            mode="markers+text" if len(looks) <= MOST_NUMBERED else "markers",
            marker={"size": 22 if len(looks) <= MOST_NUMBERED else 9, "color": [colour for colour, _ in looks]},
            text=[str(worker) for worker in range(len(looks))],
            textfont={"color": "white", "size": 11},
            hovertext=[words for _, words in looks],
            hoverinfo="text",
            showlegend=False,
        )
    )
    figure.update_xaxes(visible=False, range=[-1.2, 1.2], rangemode="normal")
    figure.update_yaxes(visible=False, range=[-1.2, 1.2], scaleanchor="x")
    return figure


def _line(curve: Series, x_title: str, *, in_legend: bool) -> go.Scatter:
    x, y = thin(curve.x, curve.y, POINTS)
    return go.Scatter(
        x=x,
        y=y,
        name=curve.name,
        legendgroup=curve.name,
        showlegend=in_legend,
        mode="lines" if len(x) > 12 else "lines+markers",
        line={"color": curve.colour, "width": 1.0 if curve.faint else 2.0},
        marker={"size": 5},
        opacity=0.38 if curve.faint else 1.0,
        hoverinfo="skip" if curve.faint else None,
        hovertemplate=f"%{{y:.5g}} at %{{x:,.5~g}} {UNITS.get(x_title, x_title)}" if not curve.faint else None,
    )


def _target(target: float, left: float, right: float) -> go.Scatter:
    """The target as a line: the axis makes room for a line, but not for a shape."""
    return go.Scatter(
        x=[left, right],
        y=[target, target],
        mode="lines+text",
        text=[f"target {target:g}", ""],
        textposition="top right",  # curves begin away from it
        line={"dash": "dot", "width": 1.2, "color": "#8a9493"},
        hoverinfo="skip",
        showlegend=False,
        name="target",
    )


def _band(curve: Series) -> go.Scatter:
    return go.Scatter(
        x=[*curve.x, *reversed(curve.x)],
        y=[*curve.high, *reversed(curve.low)],
        mode="lines",
        fill="toself",
        fillcolor=_alpha(curve.colour, 0.14),
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        legendgroup=curve.name,
    )


def _alpha(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


CONFIG = {"displaylogo": False, "displayModeBar": True, "modeBarButtons": [["toImage"]], "responsive": True}
CARTESIAN = (go.Scatter, go.Bar, go.Contour, go.Heatmap)
"""Traces that have an x and a y axis."""


def draw(figure: go.Figure, key: str, alt: str) -> None:
    """Draw a chart, with its downloads above it (`chart_files.js`). `alt` is the text for screen readers."""
    _draw_once(figure)
    with _place(figure, key, alt):
        st.plotly_chart(figure, theme=None, key=key, alt=alt, config=CONFIG)


PLOTLY_PX = 450
"""Plotly's own height of a figure."""


def _place(figure: go.Figure, key: str, alt: str) -> DeltaGenerator:
    """Draw the title in a place of the figure's height, and return it: the figure will cover the title. The browser
    may need seconds to load the library and to draw all charts above."""
    place = st.container(key=f"chart-of-{key}", gap=None)
    title, height = escape(figure.layout.title.text or alt), figure.layout.height or PLOTLY_PX
    place.html(f'<div class="sb-chart-title" aria-hidden="true" style="height:{height:.0f}px">{title}</div>')
    return place


def pick(figure: go.Figure, key: str, alt: str) -> int | None:
    """Draw a chart; returns the number in `customdata` of the clicked mark. Plotly reports clicks on marks, not on
    lines."""
    _draw_once(figure, clickmode="event+select", dragmode="pan")
    with _place(figure, key, alt):
        event: Any = st.plotly_chart(
            figure, theme=None, key=key, alt=alt, config=CONFIG, on_select="rerun", selection_mode="points"
        )
    clicked = [point["customdata"] for point in event.selection.points if point.get("customdata") is not None]
    number = clicked[0] if clicked else None
    return None if number is None else int(number[0] if isinstance(number, list) else number)


def _draw_once(figure: go.Figure, **settings: str) -> None:
    """Make Plotly draw the figure once. Streamlit passes each figure twice, and Plotly compares the two, but neither
    data nor templates: so a revision number identifies the data, and the template's layout becomes the figure's own.
    `settings` are what Streamlit would otherwise change in between."""
    if figure.layout.datarevision is None:
        layout = figure.layout.to_plotly_json()
        look = layout.pop("template", {}).get("layout", {})
        axes = {axis: look.pop(axis, {}) for axis in ("xaxis", "yaxis")}
        if any(isinstance(trace, CARTESIAN) for trace in figure.data):
            layout = {axis: {} for axis in axes} | layout
        own = {name: _laid_upon(axes[name[:5]], layout[name]) for name in layout if name[:5] in axes}
        revision = sha256(figure.to_json().encode()).hexdigest()[:16]
        # all of it at once: what `update_layout` compares, name by name, takes ten times as long
        figure.layout = _laid_upon(look, layout) | own | settings | {"datarevision": revision}
        figure.layout.template = None


def _laid_upon(under: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _laid_upon(under[key], above[key])
        for key in above
        if isinstance(under.get(key), dict) and isinstance(above[key], dict)
    }
    return {**under, **above, **both}


DARK = ";color:#1c2327"


def time_split(rows: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """The HTML of one bar for each row: its shares (0 to 1) of compute, wait, communicate and data; the rest is empty.

    HTML changes in place once a second; the browser would rebuild a Plotly chart each time (80 ms).
    """
    return legend(list(PARTS.items())) + '<div class="sb-split">' + "".join(_split_row(*row) for row in rows) + "</div>"


def _split_row(name: str, shares: Mapping[str, float]) -> str:
    positive = [(part, shares[part], colour) for part, colour in PARTS.items() if shares.get(part, 0.0) > 0]
    parts = "".join(
        f'<i style="width:{share:.2%};background:{colour}{DARK if part in LIGHT_PARTS else ""}" '
        f'title="{part} {share:.1%}">'
        f"{f'{share:.0%}' if share >= 0.07 else ''}</i>"
        for part, share, colour in positive
    )
    return f"<span>{escape(name)}</span><div>{parts}</div>"


def worker_colour(worker: int) -> str:
    """The colour of a worker, the same in all charts."""
    return PALETTE[worker % len(PALETTE)]


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """The HTML of a legend from (name, colour) pairs."""
    return (
        '<div class="sb-legend">'
        + "".join(f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in entries)
        + "</div>"
    )


MOST_SMOOTH = 0.99


class CurveLook(NamedTuple):
    """The x axis, whether y is logarithmic, and the weight of earlier points in the moving average."""

    axis: Axis
    log_y: bool
    smoothing: float
    x_title: str
    """The title of the x axis; seconds of simulated workers are called virtual."""


def choose_axis(simulated: Collection[bool] = ()) -> CurveLook:
    """Draw the choice of x axis, scale and smoothing for all charts of a page; the address holds it. `simulated`:
    whether each run is."""
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
            help="Weight of earlier points in an exponential moving average. The logged curve stays faintly visible.",
        )  # fmt: skip
    return CurveLook(axis, log_y, float(smoothing), names.axis_words(axis, simulated))
