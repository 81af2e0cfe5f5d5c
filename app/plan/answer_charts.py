"""The charts of an answer: each strategy over the number of workers."""

from collections.abc import Callable, Sequence
from math import log10

import plotly.graph_objects as go

from scalebook.app.plan import data
from scalebook.app.shared import charts
from scalebook.app.shared.charts import PALETTE, Series
from scalebook.training.asking import answer_bars
from scalebook.training.planner import Answer, Basis, Curve, Knee, Point, Range, Reliability, TargetAnswer

HEIGHT = 340
OWN_WIDTH = 4
"""Line width of the config's own strategy."""
IDEAL = "ideal"
READING = (
    "Dotted line: linear speed-up. Diamond: the number of workers up to which workers help; each further worker adds "
    "less than half of what the first one added. The line through the diamond and the bands show the range of the "
    "prediction. Dashed line: the 95th percentile. Shaded: more workers than were measured at once, so rates are "
    "extrapolated."
)


def samples(answer: Answer, dark: bool) -> go.Figure:
    """Samples per second on log-log axes, with the ideal line and the knees."""
    figure = _speed(answer, "samples/s", dark, lambda point: point.samples_per_s, 1.0)
    for curve, colour in zip(answer.curves, _colours(answer.curves), strict=True):
        if curve.knee is not None:
            figure.add_trace(_knee(curve.knee, colour, dark))
    return figure


def updates(answer: Answer, dark: bool) -> go.Figure:
    """Updates per second; the ideal line assumes one gradient per update."""
    return _speed(answer, "updates/s", dark, lambda point: point.updates_per_s, 1 / _batch(answer))


def idle(answer: Answer, dark: bool) -> go.Figure:
    """The share of time in which workers do not compute."""
    figure = _lines(answer, "time without computing", dark, lambda point: 1 - point.compute)
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
    return figure


def staleness(answer: Answer, dark: bool) -> go.Figure:
    """The mean staleness with the range of its prediction; dashed, the 95th percentile."""
    figure = _lines(answer, "staleness", dark, lambda point: point.staleness, lambda reliability: reliability.staleness)
    for curve, name, colour in zip(
        answer.curves, data.curve_names(answer.curves), _colours(answer.curves), strict=True
    ):
        figure.add_trace(
            go.Scatter(
                x=[point.workers for point in curve.points],
                y=[point.staleness_p95 for point in curve.points],
                name=f"{name}, p95", legendgroup=name, showlegend=False, mode="lines",
                line={"color": colour, "width": 1.4, "dash": "dash"}, hovertemplate="p95 %{y:,}",
            )
        )  # fmt: skip
    return figure


def target(answer: TargetAnswer, titles: Sequence[str], dark: bool) -> list[go.Figure]:
    """Updates to the target, seconds per update, and their product, for the points at which all seeds reached it."""
    reached = [
        (point.workers, point.updates, point.seconds) for point in answer.points if point.updates and point.seconds
    ]
    values = (
        [updates for _, updates, _ in reached],
        [seconds / updates for _, updates, seconds in reached],
        [seconds for *_, seconds in reached],
    )
    figures = []
    for title, y, colour in zip(titles, values, PALETTE, strict=False):
        series = [Series(title, [workers for workers, *_ in reached], y, colour)]
        figure = charts.lines(series, x_title="workers", y_title=title, dark=dark, height=HEIGHT, log_y=True)
        figures.append(_by_workers(figure, [workers for workers, *_ in reached]))
    return figures


def _by_workers(figure: go.Figure, ticks: Sequence[int]) -> go.Figure:
    return figure.update_xaxes(type="log", tickvals=ticks, ticktext=[str(tick) for tick in ticks], rangemode="normal")


def _speed(answer: Answer, title: str, dark: bool, value: Callable[[Point], float], unit: float) -> go.Figure:
    figure = _lines(answer, title, dark, value, lambda reliability: reliability.updates_per_s)
    workers = _workers(answer.curves)
    one_worker = max(curve.one_per_s for curve in answer.curves) * unit
    figure.add_trace(
        go.Scatter(
            x=workers, y=[one_worker * count for count in workers], name=IDEAL, mode="lines", hovertemplate="%{y:.4~g}",
            line={"color": "#8a9493", "width": 1.4, "dash": "dot"},
        )
    )  # fmt: skip
    figure.update_yaxes(type="log", dtick=1, exponentformat="none")
    return figure


def _lines(
    answer: Answer,
    title: str,
    dark: bool,
    value: Callable[[Point], float],
    within: Callable[[Reliability], Range | None] = lambda band: None,
) -> go.Figure:
    """A line for each curve, with the band in which measurements of its kind have lain around predictions."""
    series = []
    for curve, name, colour in zip(
        answer.curves, data.curve_names(answer.curves), _colours(answer.curves), strict=True
    ):
        y = [value(point) for point in curve.points]
        band = within(curve.reliability)
        low, high = zip(*(band.likely(predicted) for predicted in y), strict=True) if band and y else ((), ())
        series.append(Series(name, [point.workers for point in curve.points], y, colour, low=low, high=high))
    figure = charts.lines(series, x_title="workers", y_title=title, dark=dark, height=HEIGHT)
    _by_workers(figure, _workers(answer.curves))
    figure.update_traces(showlegend=True, selector={"mode": "lines+markers"})
    for curve, name in zip(answer.curves, data.curve_names(answer.curves), strict=True):
        if curve.own:
            figure.update_traces(line={"width": OWN_WIDTH}, selector={"mode": "lines+markers", "name": name})
    _shade_extrapolated(figure, answer.curves)
    return figure


def _shade_extrapolated(figure: go.Figure, curves: Sequence[Curve]) -> None:
    """Where no curve rests on times of so many workers at once, a ground in the colour of what is extrapolated."""
    measured, most = max((curve.measured for curve in curves), default=0), max(_workers(curves), default=0)
    if not 0 < measured < most:
        return
    figure.add_shape(x0=measured, x1=most, y0=0, y1=1, yref="paper", layer="below", opacity=0.1,
                     fillcolor=basis_colour("extrapolated"), line_width=0)  # fmt: skip
    sides: dict[Basis, str] = {"measured": "right", "extrapolated": "left"}
    for basis, anchor in sides.items():
        figure.add_annotation(text=basis, x=log10(measured), y=0, yref="paper", xanchor=anchor, yanchor="bottom",
                              showarrow=False, font={"color": basis_colour(basis), "size": 12})  # fmt: skip


def _knee(knee: Knee, colour: str, dark: bool) -> go.Scatter:
    return go.Scatter(
        x=[knee.workers], y=[knee.samples_per_s], mode="markers", showlegend=False, name="knee",
        error_x={"type": "data", "array": [knee.high - knee.workers], "arrayminus": [knee.workers - knee.low],
                 "color": colour, "thickness": 1.6, "width": 5},
        marker={"symbol": "diamond", "size": 12, "color": colour,
                "line": {"width": 1.6, "color": "#14181b" if dark else "#fbfbfa"}},
        hovertemplate=f"Workers help up to about %{{x:.3~g}} ({knee.low:.3g} to {knee.high:.3g})<extra></extra>",
    )  # fmt: skip


def basis_colour(basis: Basis) -> str:
    """That of answers to questions; none for rates of a profile that a person wrote."""
    return PALETTE[answer_bars.HUES[basis]] if basis else "transparent"


def _workers(curves: Sequence[Curve]) -> list[int]:
    return sorted({point.workers for curve in curves for point in curve.points})


def _colours(curves: Sequence[Curve]) -> list[str]:
    return [PALETTE[i % len(PALETTE)] for i in range(len(curves))]


def _batch(answer: Answer) -> int:
    return int(answer.profile["batch_size"])
