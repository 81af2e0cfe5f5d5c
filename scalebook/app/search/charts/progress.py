"""How the best value fell, trial after trial, and what became of each."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from scalebook.app.search.charts import looks
from scalebook.app.search.services import search_view
from scalebook.app.shared import charts
from scalebook.training.config.search.types import SearchSpec
from scalebook.training.search.map.landscape import KINDS, kind, range_of, value
from scalebook.training.search.study.trials import TrialRecord

READING = (
    "One mark per trial; the line is the best value so far. Marks along the edge could not run, or are worse "
    "than the range shown. Click a mark to open its trial."
)
BEYOND = 0.06  # share of the height beyond the worst value shown, where trials without a value stand


def draw(records: Sequence[TrialRecord], spec: SearchSpec, dark: bool, height: int = 230) -> go.Figure | None:
    """Against the trials' numbers, by the first objective; None before the first trial has ended."""
    objective = spec.objectives[0]
    shades = range_of(records, spec)
    ended = [record for record in records if record.state not in ("waiting", "running")]
    if not ended:
        return None
    low, high = (shades.best, shades.worst) if shades else (0.0, 1.0)
    log = bool(shades and shades.log)
    floor, edge = _ends(low, high, log)
    figure = looks.figure(dark, height)
    for name in KINDS:
        mine = [record for record in ended if kind(record) == name]
        if mine:
            figure.add_trace(_marks(name, mine, spec, (floor, edge), dark))
    figure.add_trace(_best(ended, spec, (floor, edge), dark))
    last = max(record.number for record in ended)
    figure.update_xaxes(title_text="trial", range=[-0.012 * last - 0.5, 1.012 * last + 0.5])
    ends = sorted((floor, edge * (edge / floor) ** BEYOND if log else edge + (edge - floor) * BEYOND))
    figure.update_yaxes(title_text=objective.name, **(looks.log_axis(*ends) if log else {"range": ends}))
    return figure


def _ends(best: float, worst: float, log: bool) -> tuple[float, float]:
    """The ends of the axis: a little beyond the best value, and beyond the worst one that is told apart."""
    if log:
        room = (worst / best) ** 0.08
        return best / room, worst * room
    room = 0.08 * (worst - best) or 0.08 * abs(best) or 1.0
    return best - room, worst + room


def _marks(
    name: str, mine: Sequence[TrialRecord], spec: SearchSpec, ends: tuple[float, float], dark: bool
) -> go.Scatter:
    low, high = sorted(ends)
    edge = ends[1]
    heights = []
    for record in mine:
        known = (
            value(record)
            if name == "finished"
            else (record.curve[-1][1] if name == "pruned" and record.curve else None)
        )
        heights.append(edge if known is None or not np.isfinite(known) else min(max(known, low), high))
    small = len(mine) > 300
    return go.Scatter(
        x=[record.number for record in mine],
        y=heights,
        mode="markers",
        name=looks.LOOKS[name].word,
        marker={**looks.marker(name, dark, 5 if small else 6.5), "opacity": 0.7},
        text=[search_view.hover(record, spec) for record in mine],
        customdata=[record.number for record in mine],
        hovertemplate="%{text}<extra></extra>",
    )


def _best(ended: Sequence[TrialRecord], spec: SearchSpec, ends: tuple[float, float], dark: bool) -> go.Scatter:
    """The line of the best value so far, within the ends of the axis."""
    lower = spec.objectives[0].lower
    x: list[int] = []
    y: list[float] = []
    for record in sorted(ended, key=lambda each: each.number):
        known = value(record)
        if known is not None and (not y or (known < y[-1] if lower else known > y[-1])):
            x.append(record.number)
            y.append(known)
    if x:
        x.append(max(record.number for record in ended))
        y.append(y[-1])
    low, high = sorted(ends)
    return go.Scatter(
        x=x, y=[min(max(best, low), high) for best in y], mode="lines", name="best so far", hoverinfo="skip",
        line={"shape": "hv", "color": charts.PALETTE[0] if not dark else "#5cc3c6", "width": 2.2},
    )  # fmt: skip
