"""The chart of an answer: each side as a multiple of the baseline."""

from collections.abc import Mapping, Sequence
from html import escape
from math import log10
from typing import Final

import plotly.graph_objects as go

from scalebook.app.shared import charts
from scalebook.app.shared.charts import PALETTE
from scalebook.training.asking import Findings, answer_bars
from scalebook.training.tracking import Goal

ROW_PX: Final = 66
AXIS_PX: Final = 66
SYMBOLS: Final = {0: "circle", 1: "triangle-right", -1: "triangle-left"}


def ratios(findings: Findings, dark: bool) -> go.Figure | None:
    """A row for each side, on a logarithmic axis with a line at 1; None where nothing has been compared."""
    rows = answer_bars.bars(findings)
    if not answer_bars.drawable(rows):
        return None
    height = AXIS_PX + ROW_PX * len(rows)
    figure = go.Figure(layout={"template": charts.template(dark), "height": height, "uirevision": "kept"})
    for kind in dict.fromkeys(row.kind for row in rows):
        figure.add_trace(_marks({-place: row for place, row in enumerate(rows) if row.kind == kind}))
    for place, row in enumerate(rows):
        figure.add_annotation(
            text=_label(row), xref="paper", x=0, xanchor="left", y=-place, yanchor="bottom", yshift=9, align="left",
            showarrow=False, font={"size": 12},
        )  # fmt: skip
    _axes(figure, rows, answer_bars.title(findings))
    for place in range(len(rows)):  # beside the marks, not through the words above them
        figure.add_shape(x0=1, x1=1, y0=-place - 0.34, y1=-place + 0.12, layer="below",
                         line={"color": "#8a9493", "width": 2})  # fmt: skip
    return figure


def legend(findings: Findings, goal: Goal | None) -> str:
    """The HTML of the kinds of its rows, each with its colour, and of which side of the line is better."""
    kinds = dict.fromkeys(bar.kind for bar in answer_bars.bars(findings))
    entries = [(kind, PALETTE[answer_bars.HUES[kind]]) for kind in kinds]
    return charts.legend([*entries, (answer_bars.better_side(findings, goal), "transparent")])


def _label(row: answer_bars.Bar) -> str:
    return f"<b>{escape(row.words)}</b><br>{row.about}"


def _marks(by_height: Mapping[int, answer_bars.Bar]) -> go.Scatter:
    """Rows of one kind, by their heights: values with their intervals."""
    rows = [*by_height.values()]
    kind = rows[0].kind
    colour = PALETTE[answer_bars.HUES[kind]]
    return go.Scatter(
        x=[row.value for row in rows],
        y=[*by_height],
        name=kind,
        mode="markers",
        text=[_label(row) for row in rows],
        marker={"size": 11, "color": colour, "symbol": [SYMBOLS[row.beyond] for row in rows]},
        error_x={
            "type": "data",
            "array": [None if row.high is None else row.high - row.value for row in rows],
            "arrayminus": [None if row.low is None else row.value - row.low for row in rows],
            "color": colour,
            "thickness": 6 if kind == "extrapolated" else 2.4,
            "width": 0 if kind == "extrapolated" else 6,
        },
        hovertemplate="%{text}<extra></extra>",
        cliponaxis=False,
        showlegend=False,
    )


def _axes(figure: go.Figure, rows: Sequence[answer_bars.Bar], title: str) -> None:
    low, high, ticks = answer_bars.axis(rows)
    figure.update_xaxes(
        type="log", range=[log10(low), log10(high)], title_text=title, tickvals=ticks,
        ticktext=[f"{tick:g}x" for tick in ticks], tickangle=0,
    )  # fmt: skip
    figure.update_yaxes(range=[-len(rows) + 0.6, 0.85], showticklabels=False, showgrid=False, showline=False)
    figure.update_layout(hovermode="closest", margin={"t": 8})
