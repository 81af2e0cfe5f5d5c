"""The learning curves of all trials over samples, so that batch sizes and strategies are compared fairly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from scalebook.app.search import trial_data, trial_style
from scalebook.training.experiments.search import SearchSpec
from scalebook.training.search.map import Shades, landscape
from scalebook.training.search.study import TrialRecord
from scalebook.training.tracking import thin

READING = (
    "One line per trial: the darker the line, the better the trial's final value. Pruned trials end early. Outliers "
    "are drawn along the edge. Click the mark at the end of a curve to open its trial."
)
READING_DARK = READING.replace("darker", "brighter")
BUCKETS = 8  # of shade; the trials of one are one trace, because a thousand traces are slow
POINTS = 48  # of one trial's curve; with a thousand trials more cannot be seen
HEIGHT = 470
FLATTENED = 8
FAR = 20


def draw(records: Sequence[TrialRecord], spec: SearchSpec, dark: bool) -> go.Figure | None:
    """The chart of all trials' learning curves; None while no trial has logged anything."""
    with_curve = [record for record in records if record.curve]
    if not with_curve:
        return None
    shades = landscape.range_of(records, spec)
    figure = trial_style.figure(dark, HEIGHT)
    frame = _frame_of(with_curve, spec)
    given_up = [record for record in with_curve if record.state in ("pruned", "infeasible", "failed")]
    if given_up:
        figure.add_trace(_lines(given_up, frame, trial_style.dim(dark), "not finished", 0.4, legend=False))
    finished = [record for record in with_curve if record.state == "finished"]
    for bucket, subset in _buckets(finished, shades):
        colour = trial_style.shade((bucket + 0.5) / BUCKETS, dark)
        figure.add_trace(_lines(subset, frame, colour, "finished", 0.75, legend=False))
    for state in ("running",):
        subset = [record for record in with_curve if record.state == state]
        if subset:
            figure.add_trace(
                _lines(subset, frame, trial_style.LOOKS[state].colour(dark), "running", 1.0, legend=True, width=1.6)
            )
    _ends(figure, with_curve, frame, spec, dark)
    _highlight(figure, with_curve, frame, spec, dark)
    _axes(figure, frame, spec, shades, dark)
    return figure


def _buckets(finished: Sequence[TrialRecord], shades: Shades | None) -> list[tuple[int, list[TrialRecord]]]:
    """The trials by bucket of shade, the worst first, so that the best are drawn on top."""
    if shades is None:
        return []
    by_bucket: dict[int, list[TrialRecord]] = {}
    values = [final if (final := landscape.value(record)) is not None else shades.worst for record in finished]
    for record, shade in zip(finished, shades.of(values), strict=True):
        by_bucket.setdefault(min(int(shade * BUCKETS), BUCKETS - 1), []).append(record)
    return sorted(by_bucket.items())


@dataclass(frozen=True)
class Frame:
    """The range of values that the chart shows. Curves beyond it run along its edge, so that they do not flatten the
    others."""

    low: float
    high: float
    log: bool

    def within(self, values: Sequence[float]) -> NDArray[np.float64]:
        return np.clip(np.asarray(values, dtype=np.float64), self.low, self.high)


def _frame_of(records: Sequence[TrialRecord], spec: SearchSpec) -> Frame:
    """The range of all values but the worst 3 %. If trials that are far worse than most would squeeze the others below
    1/FLATTENED of the height, the range of the other trials alone."""
    sign = 1 if spec.objectives[0].lower else -1
    curves = [np.array([sign * each for _, each in record.curve if np.isfinite(each)]) for record in records]
    curves = [curve for curve in curves if len(curve)]
    if not curves:
        return Frame(-np.inf, np.inf, False)
    best, worst = _ends_of(curves, "linear")
    inner = _ends_of(_without_far_worse(curves), "lower")[1]
    if worst - best > FLATTENED * (inner - best) > 0:
        worst = inner
    low, high = sorted((sign * best, sign * worst))
    return Frame(low, high, low > 0 and high / low > 8)


def _ends_of(curves: Sequence[NDArray[np.float64]], method: Literal["linear", "lower"]) -> tuple[float, float]:
    """The best value of the curves and their 97 % quantile; lower is better."""
    values = np.concatenate(curves)
    return float(values.min()), float(np.quantile(values, 0.97, method=method))


def _without_far_worse(curves: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """The curves whose best value is at most `median + FAR * (median - best)`, over the best values of all curves."""
    bests = np.array([curve.min() for curve in curves])
    middle = float(np.quantile(bests, 0.5, method="lower"))
    fence = middle + FAR * (middle - float(bests.min()))
    return [curve for curve, best in zip(curves, bests, strict=True) if best <= fence]


def _lines(
    records: Sequence[TrialRecord],
    frame: Frame,
    colour: str,
    name: str,
    opacity: float,
    *,
    legend: bool,
    width: float = 1.0,
) -> go.Scatter:
    """One trace for many curves, with a gap (NaN) after each."""
    x: list[float] = []
    y: list[float] = []
    custom: list[tuple[float, float]] = []
    for record in records:
        xs, ys = thin([float(samples) for samples, _ in record.curve], [each for _, each in record.curve], POINTS)
        x += [*xs, np.nan]
        y += [*ys, np.nan]
        custom += [(record.number, value) for value in (*ys, np.nan)]
    return go.Scatter(
        x=np.array(x, dtype=np.float32),
        y=frame.within(y).astype(np.float32),
        customdata=np.array(custom, dtype=np.float32),
        mode="lines",
        name=name,
        showlegend=legend,
        line={"color": colour, "width": width},
        opacity=opacity,
        hovertemplate="trial %{customdata[0]:d}: %{customdata[1]:.4g} after %{x:,} samples<extra></extra>",
    )


def _ends(figure: go.Figure, records: Sequence[TrialRecord], frame: Frame, spec: SearchSpec, dark: bool) -> None:
    """Add a mark at the end of each curve, by the trial's state, as in the map."""
    for state, name in (("finished", "finished"), ("pruned", "pruned"), ("diverged", "diverged"), ("failed", "failed")):
        ended = [record for record in records if (record.failure if state == "diverged" else record.state) == state]
        ended = [record for record in ended if np.isfinite(record.curve[-1][1])]
        if ended:
            figure.add_trace(
                go.Scatter(
                    x=np.array([record.curve[-1][0] for record in ended], dtype=np.float32),
                    y=frame.within([record.curve[-1][1] for record in ended]).astype(np.float32),
                    mode="markers",
                    name=trial_style.LOOKS[name].word,
                    showlegend=name != "finished",  # each stands at the end of its line
                    marker={**trial_style.marker(name, dark, 5.5), "opacity": 0.8},
                    text=[trial_data.hover(record, spec) for record in ended],
                    customdata=[record.number for record in ended],
                    hovertemplate="%{text}<extra></extra>",
                )
            )


def _highlight(figure: go.Figure, records: Sequence[TrialRecord], frame: Frame, spec: SearchSpec, dark: bool) -> None:
    winner = trial_data.best(records, spec)
    if winner is None:
        return
    x, y = thin([float(samples) for samples, _ in winner.curve], [each for _, each in winner.curve], 4 * POINTS)
    common = {
        "x": np.array(x, dtype=np.float32),
        "y": frame.within(y).astype(np.float32),
        "mode": "lines",
        "hoverinfo": "skip",
    }
    figure.add_trace(go.Scatter(**common, showlegend=False, line={"color": trial_style.ground(dark), "width": 6}))
    figure.add_trace(
        go.Scatter(
            **common,
            name=f"best: trial {winner.number}, {trial_data.words(winner, spec)}",
            line={"color": "#dd7a1b" if not dark else "#f2a24f", "width": 3},
        )
    )


def _axes(figure: go.Figure, frame: Frame, spec: SearchSpec, shades: Shades | None, dark: bool) -> None:
    name, low, high = spec.objectives[0].name, frame.low, frame.high
    if frame.log:
        figure.update_yaxes(**trial_style.log_axis(low / 1.08, high * 1.1))
    elif low < high < np.inf:
        room = 0.05 * (high - low)
        figure.update_yaxes(range=[low - room, high + room])
    curve_of = name if name not in ("seconds", "samples", "updates") else "metric"
    figure.update_xaxes(title_text="samples", rangemode="tozero")
    figure.update_yaxes(title_text=curve_of)
    if shades is not None:
        figure.add_trace(  # only for its colour bar
            go.Scatter(
                x=[None], y=[None], mode="markers", showlegend=False, hoverinfo="skip",
                marker={"color": [0.5], "coloraxis": "coloraxis"},
            )
        )  # fmt: skip
        figure.update_layout(coloraxis=trial_style.colour_axis(shades, f"{name} at the end", dark))
