"""Every chart: one template, one palette, figures from plain numbers. Nothing here reads or draws a page."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import plotly.graph_objects as go

from scalebook.training.curves import smooth, thin

PALETTE = ("#12868c", "#dd7a1b", "#7c62b3", "#3f7fd1", "#c4533c", "#5b9a3e", "#bd5695", "#8a7a52", "#4d6b78", "#b09a1a")
"""Ten hues of like lightness, told apart on a light and on a dark ground, the first three also by the colour-blind."""
PARTS = {"compute": "#107f85", "wait": "#dd7a1b", "communicate": "#7c62b3", "data": "#9aa3a2"}
LIGHT_PARTS = ("wait", "data")
"""Those on which letters are dark; on the others white ones have a contrast of 4.5."""
FONT = (
    "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif, "
    "'Source Sans', sans-serif"
)
"""What Streamlit makes of `theme.font`: it adds its own, so that the page's letters and a chart's are the same."""
UNITS = {"bytes": "B", "seconds": "s", "virtual seconds": "virtual s"}
"""Of an axis, where it is not called by its unit."""
POINTS = 600  # more per curve cannot be seen on 1,400 pixels and make the page heavy


@dataclass(frozen=True)
class Series:
    """One line: `x` and `y` of equal length; `low` and `high` draw a band. Equal names share a legend entry."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    faint: bool = False
    """A single seed behind its mean, or what was logged behind its moving average."""
    low: Sequence[float] = field(default_factory=tuple)
    high: Sequence[float] = field(default_factory=tuple)


@cache
def template(dark: bool) -> go.layout.Template:
    """The look of all charts; transparent, so that they lie on whatever they are put on."""
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
    """Curves over one axis. A curve of one point is drawn as a marker, so that a run's first value is seen at once.

    With `smoothing`, a weight below 1, each is its moving average, with the curve as it was logged faint behind it.
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
    """A line that the axis makes room for, as it does not for a shape."""
    return go.Scatter(
        x=[left, right],
        y=[target, target],
        mode="lines+text",
        text=["", f"target {target:g}"],
        textposition="top left",
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
