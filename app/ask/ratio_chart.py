"""The chart of an answer: each side as a multiple of the baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import plotly.graph_objects as go

from scalebook.app.shared import charts
from scalebook.app.shared.charts import PALETTE
from scalebook.training.asking import Findings, decided_by, times, two

COLOURS: Final = {"measured": PALETTE[0], "simulated": PALETTE[2], "planned": PALETTE[1]}
WORDS: Final = {"seconds": "time", "samples": "samples", "best": "best value"}
ROW_PX: Final = 46
ROOM: Final = 1.35
"""Room beside the smallest and the largest value, as a factor."""


@dataclass(frozen=True)
class Bar:
    """One row: a value with the ends of its interval; None for an end that is not known."""

    words: str
    kind: str
    figure: str
    value: float
    low: float | None
    high: float | None
    text: str

    @property
    def label(self) -> str:
        return f"{escape(self.words)}<br><i>{self.kind}, {self.figure}</i>"


def bars(findings: Findings) -> list[Bar]:
    """The sides that have been compared, then those that are planned."""
    rows = []
    for row in findings.rows[1:]:
        figure = decided_by(findings, row)
        if (ratio := row.ratios.get(figure)) is not None:
            ends = (None if ratio.no_low else ratio.low, None if ratio.no_high else ratio.high)
            rows.append(Bar(row.words, row.kind, WORDS[figure], ratio.value, *ends, times(ratio)))
    for planned in findings.planned:
        middle, within = (planned.low * planned.high) ** 0.5, f"{two(planned.low)}x to {two(planned.high)}x"
        rows.append(Bar(planned.words, "planned", "time of a sample", middle, planned.low, planned.high, within))
    return rows


def ratios(findings: Findings, dark: bool) -> go.Figure | None:
    """A row for each side, on a logarithmic axis with a line at 1; None where nothing has been compared."""
    rows = bars(findings)
    if not rows or any(end is not None and end <= 0 for row in rows for end in (row.low, row.value, row.high)):
        return None
    figure = go.Figure(
        layout={"template": charts.template(dark), "height": 74 + ROW_PX * len(rows), "uirevision": "kept"}
    )
    for kind in dict.fromkeys(row.kind for row in rows):
        figure.add_trace(_marks([row for row in rows if row.kind == kind], kind))
    _axes(figure, rows, _title(findings))
    figure.add_vline(x=1, line={"color": "#8a9493", "width": 1.4, "dash": "dot"})
    return figure


def _title(findings: Findings) -> str:
    baseline = findings.rows[0].words
    if findings.figure == "best":
        return f"best {findings.metric} as a multiple of that of {baseline}"
    return f"multiple of {baseline}, logarithmic: less than 1 is better"


def _marks(rows: Sequence[Bar], kind: str) -> go.Scatter:
    return go.Scatter(
        x=[row.value for row in rows],
        y=[row.label for row in rows],
        name=kind,
        mode="markers+text",
        text=[row.text for row in rows],
        textposition="top center",
        textfont={"size": 11.5},
        marker={"size": 10, "color": COLOURS[kind], "symbol": [_symbol(row) for row in rows]},
        error_x={
            "type": "data",
            "array": [row.high - row.value if row.high is not None else 0 for row in rows],
            "arrayminus": [row.value - row.low if row.low is not None else 0 for row in rows],
            "color": COLOURS[kind],
            "thickness": 5 if kind == "planned" else 2.4,
            "width": 0 if kind == "planned" else 6,
        },
        hovertemplate="%{text}<extra></extra>",
        cliponaxis=False,
        showlegend=True,
    )


def _symbol(row: Bar) -> str:
    """An arrow towards an end that is not known."""
    if row.high is None:
        return "triangle-right"
    return "triangle-left" if row.low is None else "circle"


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
MOST_TICKS: Final = 7


def _axes(figure: go.Figure, rows: Sequence[Bar], title: str) -> None:
    import math

    every = [1.0, *(end for row in rows for end in (row.low, row.value, row.high) if end is not None)]
    low, high = min(every) / ROOM, max(every) * ROOM
    ticks = [tick for tick in TICKS if low <= tick <= high]
    while len(ticks) > MOST_TICKS:
        one = ticks.index(1)
        ticks = [tick for place, tick in enumerate(ticks) if (place - one) % 2 == 0]
    figure.update_xaxes(
        type="log", range=[math.log10(low), math.log10(high)], title_text=title, tickvals=ticks,
        ticktext=[f"{tick:g}x" for tick in ticks],
    )  # fmt: skip
    order = [row.label for row in rows]
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1], range=[-0.6, len(rows) - 0.3], showline=False)
    figure.update_layout(hovermode="closest", margin={"t": 40})
