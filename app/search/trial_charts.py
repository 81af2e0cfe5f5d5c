"""Charts of trials: best value so far, importance of each dimension, two objectives, parallel coordinates."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from scalebook.app.search import trial_data, trial_style
from scalebook.app.shared import charts
from scalebook.app.shared.words import spoken
from scalebook.training.experiments.search import Dimension, SearchSpec
from scalebook.training.search.map import can_be_axis, landscape, scale, shades
from scalebook.training.search.study import TrialRecord

PROGRESS_READING = (
    "There is one mark per trial. The line shows the best value so far. Marks along the edge are trials that could "
    "not run or whose values are outside the range shown. Click a mark to open its trial."
)
BEYOND = 0.06  # share of the height beyond the worst value shown, where trials without a value stand


def progress(records: Sequence[TrialRecord], spec: SearchSpec, dark: bool, height: int = 230) -> go.Figure | None:
    """The chart of the best value so far of the first objective over the trials' numbers; None before the first trial
    ends."""
    objective = spec.objectives[0]
    shades = landscape.range_of(records, spec)
    ended = [record for record in records if record.state not in ("waiting", "running")]
    if not ended:
        return None
    low, high = (shades.best, shades.worst) if shades else (0.0, 1.0)
    log = bool(shades and shades.log)
    floor, edge = _ends(low, high, log)
    figure = trial_style.figure(dark, height)
    for name in landscape.KINDS:
        subset = [record for record in ended if landscape.kind(record) == name]
        if subset:
            figure.add_trace(_marks(name, subset, spec, (floor, edge), dark))
    figure.add_trace(_best(ended, spec, (floor, edge), dark))
    last = max(record.number for record in ended)
    figure.update_xaxes(title_text="trial", range=[-0.012 * last - 0.5, 1.012 * last + 0.5])
    ends = sorted((floor, edge * (edge / floor) ** BEYOND if log else edge + (edge - floor) * BEYOND))
    figure.update_yaxes(title_text=objective.name, **(trial_style.log_axis(*ends) if log else {"range": ends}))
    return figure


def _ends(best: float, worst: float, log: bool) -> tuple[float, float]:
    """The ends of the axis: a little beyond the best value, and beyond the worst value shown."""
    if log:
        room = (worst / best) ** 0.08
        return best / room, worst * room
    room = 0.08 * (worst - best) or 0.08 * abs(best) or 1.0
    return best - room, worst + room


def _marks(
    name: str, records: Sequence[TrialRecord], spec: SearchSpec, ends: tuple[float, float], dark: bool
) -> go.Scatter:
    low, high = sorted(ends)
    edge = ends[1]
    heights = []
    for record in records:
        result = (
            landscape.value(record)
            if name == "finished"
            else (record.curve[-1][1] if name == "pruned" and record.curve else None)
        )
        heights.append(edge if result is None or not np.isfinite(result) else min(max(result, low), high))
    small = len(records) > 300
    return go.Scatter(
        x=[record.number for record in records],
        y=heights,
        mode="markers",
        name=trial_style.LOOKS[name].word,
        marker={**trial_style.marker(name, dark, 5 if small else 6.5), "opacity": 0.7},
        text=[trial_data.hover(record, spec) for record in records],
        customdata=[record.number for record in records],
        hovertemplate="%{text}<extra></extra>",
    )


def _best(ended: Sequence[TrialRecord], spec: SearchSpec, ends: tuple[float, float], dark: bool) -> go.Scatter:
    """The line of the best value so far, within the ends of the axis."""
    lower = spec.objectives[0].lower
    x: list[int] = []
    y: list[float] = []
    for record in sorted(ended, key=lambda each: each.number):
        result = landscape.value(record)
        if result is not None and (not y or (result < y[-1] if lower else result > y[-1])):
            x.append(record.number)
            y.append(result)
    if x:
        x.append(max(record.number for record in ended))
        y.append(y[-1])
    low, high = sorted(ends)
    return go.Scatter(
        x=x, y=[min(max(best, low), high) for best in y], mode="lines", name="best so far", hoverinfo="skip",
        line={"shape": "hv", "color": charts.PALETTE[0] if not dark else "#5cc3c6", "width": 2.2},
    )  # fmt: skip


IMPORTANCE_READING = (
    "How much each dimension determines whether a trial is among the best 10 % (PED-ANOVA; the shares add up to 1). "
    "A dimension that the search has already narrowed down looks less important than it is."
)


def importance(shares: Mapping[str, float], dark: bool) -> go.Figure:
    """The chart of each dimension's importance: bars, the largest on top."""
    names = list(shares)[::-1]
    figure = trial_style.figure(dark, 92 + 44 * len(names))
    figure.add_trace(
        go.Bar(
            x=[shares[name] for name in names],
            y=[spoken(name) for name in names],
            orientation="h",
            marker={"color": charts.PALETTE[0], "cornerradius": 3},
            text=[f"{shares[name]:.0%}" if shares[name] >= 0.005 else "<1%" for name in names],
            textposition="outside",
            textfont={"color": trial_style.ink(dark)},
            cliponaxis=False,
            hoverinfo="skip",
        )
    )
    top = max(shares.values(), default=1.0)
    figure.update_xaxes(title_text="share", range=[0, min(1.0, top) * 1.12], tickformat=".0%")
    figure.update_yaxes(tickfont={"size": 13, "color": trial_style.ink(dark)}, ticklabelstandoff=8)
    figure.update_layout(showlegend=False)
    return figure


PARETO_HEIGHT = 470


def pareto_reading(spec: SearchSpec) -> str:
    """The line below the Pareto chart; with a single objective the other axis is seconds."""
    if len(spec.objectives) > 1:
        return (
            "The line is the Pareto front: trials that no other trial beats in both objectives. Dim dots are trials "
            "that another trial beats in both objectives. Click a dot "
            "to open its trial."
        )
    alone = "" if spec.exclusive or spec.is_simulated else " Trials ran at the same time and slowed each other down."
    return (
        "Quality against the seconds that each trial took. The line is the Pareto front, although the search "
        f"optimizes only quality.{alone} Click a dot to open its trial."
    )


def pareto(records: Sequence[TrialRecord], spec: SearchSpec, dark: bool) -> go.Figure | None:
    """The chart of quality over cost; None before the first trial with both values."""
    placed = [(point, record) for record in records if (point := _place(record, spec)) is not None]
    if not placed:
        return None
    front = _front(placed, spec)
    numbers = {record.number for _, record in front}
    rest = [pair for pair in placed if pair[1].number not in numbers]
    figure = trial_style.figure(dark, PARETO_HEIGHT)
    figure.add_trace(_dots(rest, spec, dark, "dominated", trial_style.dim(dark), 6.5, 0.4))
    x, y = [point[0] for point, _ in front], [point[1] for point, _ in front]
    accent = "#0b6e75" if not dark else "#5cc3c6"
    figure.add_trace(
        go.Scatter(
            x=x, y=y, mode="lines", showlegend=False, hoverinfo="skip",
            line={"shape": "hv" if _lower(spec)[0] else "vh", "color": accent, "width": 2},
        )
    )  # fmt: skip
    figure.add_trace(_dots(front, spec, dark, "front", accent, 10, 1.0))
    for update, name, values in (
        (figure.update_xaxes, _names(spec)[0], [point[0] for point, _ in placed]),
        (figure.update_yaxes, _names(spec)[1], [point[1] for point, _ in placed]),
    ):
        update(title_text=name, **_range(values))
    return figure


def _names(spec: SearchSpec) -> tuple[str, str]:
    """The titles of the axes: the cost on x, the quality on y."""
    cost = spec.objectives[1].name if len(spec.objectives) > 1 else "seconds"
    return trial_data.amount(spec, cost), trial_data.amount(spec, spec.objectives[0].name)


def _lower(spec: SearchSpec) -> tuple[bool, bool]:
    return (spec.objectives[1].lower if len(spec.objectives) > 1 else True, spec.objectives[0].lower)


def _place(record: TrialRecord, spec: SearchSpec) -> tuple[float, float] | None:
    first = landscape.value(record)
    second = landscape.value(record, 1) if len(spec.objectives) > 1 else record.seconds
    return None if first is None or second is None else (second, first)


Placed = tuple[tuple[float, float], TrialRecord]


def _front(placed: Sequence[Placed], spec: SearchSpec) -> list[Placed]:
    """The Pareto front: the trials that no other beats in both values, the cheapest first."""
    across, up = _lower(spec)
    ranked = sorted(placed, key=lambda pair: (pair[0][0] if across else -pair[0][0], pair[0][1] if up else -pair[0][1]))
    front: list[Placed] = []
    for pair in ranked:
        if not front or (pair[0][1] < front[-1][0][1] if up else pair[0][1] > front[-1][0][1]):
            front.append(pair)
    return front


def _dots(
    placed: Sequence[Placed], spec: SearchSpec, dark: bool, name: str, colour: str, size: float, opacity: float
) -> go.Scatter:
    return go.Scatter(
        x=[point[0] for point, _ in placed],
        y=[point[1] for point, _ in placed],
        mode="markers",
        name=name,
        marker={
            "size": size,
            "color": colour,
            "opacity": opacity,
            "line": {"width": 0.7, "color": trial_style.ground(dark)},
        },
        text=[trial_data.hover(record, spec) for _, record in placed],
        customdata=[record.number for _, record in placed],
        hovertemplate="%{text}<extra></extra>",
    )


def _range(values: Sequence[float]) -> dict[str, object]:
    """An axis that contains all values; logarithmic if they span much, so that the worst do not flatten the rest."""
    low, high = min(values), max(values)
    if low == high:
        return {}
    if low > 0 and high / low >= shades.LOG_RATIO:
        room = (high / low) ** 0.08
        return trial_style.log_axis(low / room, high * room)
    room = 0.08 * (high - low)
    return {"range": [low - room, high + room]}


PARALLEL_READING = (
    "One line per trial, through its value on every axis, coloured from good to bad. Drag along an axis to filter "
    "the trials. Drag the name of an axis to move the axis."
)
PARALLEL_HEIGHT = 470
MISSING = -0.12  # position of a line without a value on an axis
ASIDE = 0.025  # of an axis
BAD = -0.14  # colour value of trials that could not run, beyond the worst shade; drawn first, so below the others
BAD_COLOURS = ("#e3c3d6", "#573f50")  # those of a diverged trial, dim: there may be hundreds


def parallel(records: Sequence[TrialRecord], spec: SearchSpec, dark: bool) -> go.Figure | None:
    """The chart of an axis for each dimension and a line for each finished or infeasible trial, coloured by its value;
    an infeasible trial ends below the last axis. None before the first such trial."""
    shades = landscape.range_of(records, spec)
    drawn = [record for record in records if landscape.value(record) is not None or record.state == "infeasible"]
    if not drawn or shades is None:
        return None
    worst_first = sorted(
        drawn, key=lambda record: -1.0 if (v := landscape.value(record)) is None else float(shades.of([v])[0])
    )
    position = np.array(
        [MISSING if (v := landscape.value(record)) is None else float(shades.of([v])[0]) for record in worst_first],
        dtype=np.float32,
    )
    colour = np.where(position == MISSING, BAD, position)
    axes = [_axis(dimension, worst_first, spec) for dimension in spec.space] + [_values(position, spec, shades.ticks())]
    figure = trial_style.figure(dark, PARALLEL_HEIGHT)
    scale_to = [((stop - BAD) / (1 - BAD), each) for stop, each in trial_style.colorscale(dark)]
    bad, border = BAD_COLOURS[dark], scale_to[0][0] - 0.001
    figure.add_trace(
        go.Parcoords(
            dimensions=axes,
            line={
                "color": colour.astype(np.float32), "cmin": BAD, "cmax": 1,
                "colorscale": [(0, bad), (border, bad), *scale_to],
            },
            labelfont={"size": 12.5, "color": trial_style.ink(dark)},
            tickfont={"size": 11.5, "color": trial_style.ink(dark)},
            rangefont={"size": 1, "color": "rgba(0,0,0,0)"},
            unselected={"line": {"color": trial_style.dim(dark), "opacity": 0.06}},
        )
    )  # fmt: skip
    figure.update_layout(margin={"l": 70, "r": 80, "t": 66, "b": 18})
    return figure


def _axis(dimension: Dimension, records: Sequence[TrialRecord], spec: SearchSpec) -> dict[str, object]:
    name = spec.called(dimension.name.rsplit(".", 1)[-1])
    if can_be_axis(dimension):
        along = scale(dimension)
        places = [
            along.position(record.point[dimension.name]) if dimension.name in record.point else MISSING
            for record in records
        ]
        ticks = along.ticks()
    else:
        labels = list(dict.fromkeys(dimension.label(each) for each in dimension.choices)) or [
            dimension.label(dimension.low)
        ]
        step = (1 - 2 * ASIDE) / max(len(labels) - 1, 1)
        chosen = [
            dimension.label(record.point[dimension.name]) if dimension.name in record.point else ""
            for record in records
        ]
        places = [
            ASIDE + labels.index(each) * step + _aside(record.number) if each in labels else MISSING
            for record, each in zip(records, chosen, strict=True)
        ]
        ticks = [(ASIDE + i * step, label) for i, label in enumerate(labels)]
    return {
        "label": name, "values": np.array(places, dtype=np.float32),
        "range": [min([-0.03, *places]), max([1.03, *places])],
        "tickvals": [tick for tick, _ in ticks], "ticktext": [label for _, label in ticks],
    }  # fmt: skip


def _aside(number: int) -> float:
    """An offset that spreads the lines of one category, to show how many there are; the same in every drawing."""
    return ASIDE * (2 * (number * 0.618034 % 1.0) - 1)


def _values(position: NDArray[np.float32], spec: SearchSpec, ticks: list[tuple[float, str]]) -> dict[str, object]:
    infeasible = [(MISSING, "could not run")] if (position == MISSING).any() else []
    marks = [*infeasible, *ticks]
    return {
        "label": spec.objectives[0].name, "values": position, "range": [MISSING if infeasible else -0.03, 1.03],
        "tickvals": [mark for mark, _ in marks], "ticktext": [label for _, label in marks],
    }  # fmt: skip
