"""Parallel coordinates: an axis for each dimension, a line for each trial, coloured by its value."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from scalebook.app.search.charts import looks
from scalebook.training.config.search.space import Dimension
from scalebook.training.config.search.types import SearchSpec
from scalebook.training.search.map.landscape import range_of, value
from scalebook.training.search.map.scales import can_be_axis, scale
from scalebook.training.search.study.trials import TrialRecord

READING = (
    "One line per trial, through its value on every axis, coloured from good to bad. Drag along an axis to "
    "filter; drag an axis name to move it."
)
HEIGHT = 470
MISSING = -0.12  # where lines end that have no value on an axis
ASIDE = 0.025  # of an axis
BAD = -0.14  # the colour of trials that could not run, beyond the worst shade: what is drawn first lies below
BAD_COLOURS = ("#e3c3d6", "#573f50")  # those of a diverged trial, dim: there may be hundreds


def draw(records: Sequence[TrialRecord], spec: SearchSpec, dark: bool) -> go.Figure | None:
    """Finished and infeasible trials; the latter end above or below the last axis. None before the first of them."""
    shades = range_of(records, spec)
    known = [record for record in records if value(record) is not None or record.state == "infeasible"]
    if not known or shades is None:
        return None
    worst_first = sorted(known, key=lambda record: -1.0 if (v := value(record)) is None else float(shades.of([v])[0]))
    position = np.array(
        [MISSING if (v := value(record)) is None else float(shades.of([v])[0]) for record in worst_first],
        dtype=np.float32,
    )
    colour = np.where(position == MISSING, BAD, position)
    axes = [_axis(dimension, worst_first, spec) for dimension in spec.space] + [_values(position, spec, shades.ticks())]
    figure = looks.figure(dark, HEIGHT)
    scale_to = [((at - BAD) / (1 - BAD), each) for at, each in looks.colorscale(dark)]
    bad, border = BAD_COLOURS[dark], scale_to[0][0] - 0.001
    figure.add_trace(
        go.Parcoords(
            dimensions=axes,
            line={
                "color": colour.astype(np.float32), "cmin": BAD, "cmax": 1,
                "colorscale": [(0, bad), (border, bad), *scale_to],
            },
            labelfont={"size": 12.5, "color": looks.ink(dark)},
            tickfont={"size": 11.5, "color": looks.ink(dark)},
            rangefont={"size": 1, "color": "rgba(0,0,0,0)"},
            unselected={"line": {"color": looks.dim(dark), "opacity": 0.06}},
        )
    )  # fmt: skip
    figure.update_layout(margin={"l": 70, "r": 80, "t": 66, "b": 18})
    return figure


def _axis(dimension: Dimension, mine: Sequence[TrialRecord], spec: SearchSpec) -> dict[str, object]:
    name = spec.called(dimension.name.rsplit(".", 1)[-1])
    if can_be_axis(dimension):
        along = scale(dimension)
        at = [
            along.position(record.point[dimension.name]) if dimension.name in record.point else MISSING
            for record in mine
        ]
        ticks = along.ticks()
    else:
        labels = list(dict.fromkeys(dimension.label(each) for each in dimension.choices)) or [
            dimension.label(dimension.low)
        ]
        step = (1 - 2 * ASIDE) / max(len(labels) - 1, 1)
        chosen = [
            dimension.label(record.point[dimension.name]) if dimension.name in record.point else "" for record in mine
        ]
        at = [
            ASIDE + labels.index(each) * step + _aside(record.number) if each in labels else MISSING
            for record, each in zip(mine, chosen, strict=True)
        ]
        ticks = [(ASIDE + i * step, label) for i, label in enumerate(labels)]
    return {
        "label": name, "values": np.array(at, dtype=np.float32), "range": [min([-0.03, *at]), max([1.03, *at])],
        "tickvals": [tick for tick, _ in ticks], "ticktext": [label for _, label in ticks],
    }  # fmt: skip


def _aside(number: int) -> float:
    """Spreads the lines of one category a little, so that it shows how many there are; the same at every drawing."""
    return ASIDE * (2 * (number * 0.618034 % 1.0) - 1)


def _values(position: NDArray[np.float32], spec: SearchSpec, ticks: list[tuple[float, str]]) -> dict[str, object]:
    infeasible = [(MISSING, "could not run")] if (position == MISSING).any() else []
    marks = [*infeasible, *ticks]
    return {
        "label": spec.objectives[0].name, "values": position, "range": [MISSING if infeasible else -0.03, 1.03],
        "tickvals": [mark for mark, _ in marks], "ticktext": [label for _, label in marks],
    }  # fmt: skip
