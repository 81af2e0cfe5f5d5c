"""The chart of an answer: each side as a multiple of the baseline."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import plotly.graph_objects as go

from scalebook.app.shared import charts
from scalebook.app.shared.charts import PALETTE
from scalebook.training.asking import Findings, decided_by, times, two
from scalebook.training.tracking import Goal

COLOURS: Final = {"measured": PALETTE[0], "simulated": PALETTE[2], "planned": PALETTE[1]}
WORDS: Final = {"seconds": "time", "samples": "samples", "best": "best value"}
ROW_PX: Final = 66
AXIS_PX: Final = 66
ROOM: Final = 1.35
"""Room beside the smallest and the largest value, as a factor."""


@dataclass(frozen=True)
class Bar:
    """One row: a value, and the ends of its interval if it has one."""

    words: str
    kind: str
    figure: str
    value: float
    low: float | None
    high: float | None
    text: str
    symbol: str = "circle"
    """An arrow where it is more or less than the value."""

    @property
    def label(self) -> str:
        return f"<b>{escape(self.words)}</b><br>{self.kind}, {self.figure}: {self.text}"


def bars(findings: Findings) -> list[Bar]:
    """The sides that have been compared, then those that are planned."""
    rows = []
    for row in findings.rows[1:]:
        figure = decided_by(findings, row)
        if (ratio := row.ratios.get(figure)) is not None:
            low, high = (None, None) if ratio.no_low or ratio.no_high else (ratio.low, ratio.high)
            symbol = "triangle-right" if ratio.no_high else "triangle-left" if ratio.no_low else "circle"
            rows.append(Bar(row.words, row.kind, WORDS[figure], ratio.value, low, high, times(ratio), symbol))
    for planned in findings.planned:
        middle, within = math.sqrt(planned.low * planned.high), f"{two(planned.low)}x to {two(planned.high)}x"
        rows.append(Bar(planned.words, "planned", "time of a sample", middle, planned.low, planned.high, within))
    return rows


def ratios(findings: Findings, dark: bool) -> go.Figure | None:
    """A row for each side, on a logarithmic axis with a line at 1; None where nothing has been compared."""
    rows = bars(findings)
    if not rows or any(end is not None and end <= 0 for row in rows for end in (row.low, row.value, row.high)):
        return None
    height = AXIS_PX + ROW_PX * len(rows)
    figure = go.Figure(layout={"template": charts.template(dark), "height": height, "uirevision": "kept"})
    for kind in dict.fromkeys(row.kind for row in rows):
        figure.add_trace(_marks(rows, kind))
    for place, row in enumerate(rows):
        figure.add_annotation(
            text=row.label, xref="paper", x=0, xanchor="left", y=-place, yanchor="bottom", yshift=9, align="left",
            showarrow=False, font={"size": 12},
        )  # fmt: skip
    _axes(figure, rows, _title(findings))
    figure.add_vline(x=1, line={"color": "#8a9493", "width": 2}, layer="below")
    return figure


def legend(findings: Findings, goal: Goal | None) -> str:
    """The HTML of the kinds of its rows, each with its colour, and of which side of the line is better."""
    better = "right" if findings.figure == "best" and goal == "max" else "left"
    entries = [(kind, COLOURS[kind]) for kind in dict.fromkeys(row.kind for row in bars(findings))]
    return charts.legend([*entries, (f"{better} of the line is better", "transparent")])


def _title(findings: Findings) -> str:
    baseline = findings.rows[0].words
    if findings.figure == "best":
        return f"best {findings.metric} as a multiple of that of {baseline}"
    return f"multiple of {baseline}"


def _marks(rows: Sequence[Bar], kind: str) -> go.Scatter:
    """The rows of one kind: values with their intervals."""
    places = [-place for place, row in enumerate(rows) if row.kind == kind]
    rows = [row for row in rows if row.kind == kind]
    return go.Scatter(
        x=[row.value for row in rows],
        y=places,
        name=kind,
        mode="markers",
        text=[row.label for row in rows],
        marker={"size": 11, "color": COLOURS[kind], "symbol": [row.symbol for row in rows]},
        error_x={
            "type": "data",
            "array": [None if row.high is None else row.high - row.value for row in rows],
            "arrayminus": [None if row.low is None else row.value - row.low for row in rows],
            "color": COLOURS[kind],
            "thickness": 6 if kind == "planned" else 2.4,
            "width": 0 if kind == "planned" else 6,
        },
        hovertemplate="%{text}<extra></extra>",
        cliponaxis=False,
        showlegend=False,
    )


TICKS: Final = (
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.25,
    0.33,
    0.5,
    0.7,
    0.8,
    0.9,
    1,
    1.1,
    1.2,
    1.5,
    2,
    3,
    4,
    5,
    10,
    20,
    50,
    100,
)
MOST_TICKS: Final = 6


def _axes(figure: go.Figure, rows: Sequence[Bar], title: str) -> None:
    every = [1.0, *(end for row in rows for end in (row.low, row.value, row.high) if end is not None)]
    low, high = min(every) / ROOM, max(every) * ROOM
    ticks: list[float] = []
    for tick in sorted((tick for tick in TICKS if low <= tick <= high), key=lambda tick: abs(math.log(tick))):
        if all(abs(math.log(tick / other)) >= math.log(high / low) / MOST_TICKS for other in ticks):
            ticks.append(tick)
    figure.update_xaxes(
        type="log", range=[math.log10(low), math.log10(high)], title_text=title, tickvals=ticks,
        ticktext=[f"{tick:g}x" for tick in ticks], tickangle=0,
    )  # fmt: skip
    figure.update_yaxes(range=[-len(rows) + 0.6, 0.85], showticklabels=False, showgrid=False, showline=False)
    figure.update_layout(hovermode="closest", margin={"t": 8})
