"""The map of a search: values over two dimensions, regions that could not run, the memory limit, the best ridge."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from scalebook.app.search import trial_data, trial_style
from scalebook.app.shared import charts
from scalebook.app.shared.words import spoken
from scalebook.training.experiments.search import SearchSpec
from scalebook.training.search.map import Iso, Scale, ShadeGrid, landscape, scale
from scalebook.training.search.study import TrialRecord

PAD = 0.045  # beyond the lowest and the highest value, so that no marker is cut
ACROSS = 3  # panels side by side
ROW, HEAD = 400, 96  # pixels
LEGEND = 66  # its two rows, which it needs on a phone
TITLE = 18
GAP = (0.025, 0.1)  # between panels, of the whole: across and upwards
FINE, COARSE = 96, 56  # cells of a field along each axis: of one panel, of several
MOST_PANELS = 9
MANY = 150  # trials from which marks are small
ALONG = 0.86  # of a dotted line, where its constant stands
Trace = dict[str, Any]
"""A trace as Plotly's JSON: the figure is then built and checked at once, which is three times as fast."""


def reading(spec: SearchSpec, x: str, y: str, by: Sequence[str]) -> str:
    """The line below the map: it explains the marks, and names the dimensions in which overlapping trials differ."""
    others = [dimension.name for dimension in spec.space if dimension.name not in (x, y, *by)]
    mixed = (
        f" Trials that differ only in {', '.join(map(spoken, others))} overlap, and the coloured field shows the mean "
        "of these trials."
        if others
        else ""
    )
    iso = (
        " Dotted lines: constant ratio of learning rate to batch size."
        if (x, y) == ("batch_size", "learning_rate")
        else ""
    )
    return (
        "Dots are finished trials, and the coloured field between the dots is interpolated. Tinted areas: nearby "
        "trials diverged or ran out of memory. Blank areas: there is no trial nearby. The line connects the best "
        "trial of each column, except columns where only one trial was not pruned. Click a mark to open its "
        f"trial.{iso}{mixed}"
    )


def draw(
    records: Sequence[TrialRecord],
    spec: SearchSpec,
    x: str,
    y: str,
    categories: Sequence[str],
    dark: bool,
    objective: int = 0,
) -> go.Figure:
    """The map, with a panel for each combination of `categories`; all panels share axes and colours."""
    colour = landscape.range_of(records, spec, objective)
    named_parts = landscape.panels(records, spec, categories) or [("", [])]
    cells = FINE if len(named_parts) == 1 else COARSE
    parts = [
        landscape.landscape(group, spec, x, y, colour, objective=objective, title=title, cells=cells)
        for title, group in named_parts
    ]
    best = _best(records, spec, objective)
    across, up = scale(spec.dimension(x)), scale(spec.dimension(y))
    columns = 2 if len(parts) == 4 else min(ACROSS, len(parts))
    layout = _layout(spec, parts, columns, across, up, dark)
    if colour is not None:
        layout["coloraxis"] = trial_style.colour_axis(colour, spec.objectives[objective].name, dark)
    legend: set[str] = set()
    traces: list[Trace] = []
    for i, part in enumerate(parts):
        place = {"xaxis": f"x{i + 1 if i else ''}", "yaxis": f"y{i + 1 if i else ''}"}
        traces += [trace | place for trace in _panel(part, spec, dark, legend, best)]
        layout["shapes"] += _edge(part, dark, place)
        layout["annotations"] += _words(part, dark, place)
    return go.Figure(data=traces, layout=layout)


def _best(records: Sequence[TrialRecord], spec: SearchSpec, objective: int) -> int | None:
    """The number of the best trial by this objective."""
    sign = 1 if spec.objectives[objective].lower else -1
    values = [
        (sign * reached, record.number)
        for record in records
        if (reached := landscape.value(record, objective)) is not None
    ]
    return min(values)[1] if values else None


def _layout(
    spec: SearchSpec, parts: Sequence[landscape.Landscape], columns: int, across: Scale, up: Scale, dark: bool
) -> dict[str, Any]:
    """The layout of the panels: tick labels and titles stand at the left and below the lowest panel of each column."""
    rows = -(-len(parts) // columns)  # ceil
    titled = bool(parts[0].title)
    layout: dict[str, Any] = {
        "template": charts.template(dark),
        "hovermode": "closest",
        "height": HEAD + ROW * rows,
        "margin": {"t": LEGEND + (TITLE if titled else 0), "r": 8},
        "legend": {"y": 1, "yref": "container", "yanchor": "top", "itemsizing": "constant"},
        "shapes": [],
        "annotations": [],
    }
    wide, high = (1 - GAP[0] * (columns - 1)) / columns, (1 - GAP[1] * (rows - 1)) / rows
    for i, part in enumerate(parts):
        row, column = divmod(i, columns)
        left, top = column * (wide + GAP[0]), 1 - row * (high + GAP[1])
        name = str(i + 1) if i else ""
        lowest = i + columns >= len(parts)
        layout[f"xaxis{name}"] = {
            **_axis(across, parts, 0), "domain": [left, left + wide], "anchor": f"y{name}", "showticklabels": lowest,
            "title": {"text": spec.called(across.dimension.name) if lowest else ""}, **({"matches": "x"} if i else {}),
        }  # fmt: skip
        layout[f"yaxis{name}"] = {
            **_axis(up, parts, 1), "domain": [max(0.0, top - high), top], "anchor": f"x{name}",
            "showticklabels": not column, "title": {"text": spec.called(up.dimension.name) if not column else ""},
            **({"matches": "y"} if i else {}),
        }  # fmt: skip
        if titled:
            layout["annotations"].append(
                {
                    "text": part.title, "x": left + wide / 2, "y": top, "xref": "paper", "yref": "paper",
                    "xanchor": "center", "yanchor": "bottom", "showarrow": False,
                    "font": {"size": 13, "color": trial_style.ink(dark)},
                }
            )  # fmt: skip
    return layout


def _axis(scale: Scale, parts: Sequence[landscape.Landscape], axis: int) -> dict[str, Any]:
    """Plotly's axis over the whole dimension, extended to points added by hand."""
    places = [float(row[axis]) for part in parts for mine in part.positions.values() for row in mine]
    ticks = scale.ticks()
    return {
        "range": [min([0.0, *places]) - PAD, max([1.0, *places]) + PAD],
        "tickvals": [place for place, _ in ticks],
        "ticktext": [label for _, label in ticks],
    }


def _panel(part: landscape.Landscape, spec: SearchSpec, dark: bool, legend: set[str], best: int | None) -> list[Trace]:
    """The traces of one panel from bottom to top: field, dotted lines, ridge, trials by kind, the best trial of all."""
    traces: list[Trace] = []
    if part.field is not None:
        traces += _refused(part.field, dark, legend)
        traces.append(_field(part.field, dark))
    if part.iso:
        traces += [
            _iso(part.iso, dark, legend),
            _quotients(part.iso, dark),
        ]  # below the marks, which they must not hide
    if len(part.ridge) > 1:
        traces.append(_line(part, dark, legend))
    if "finished" in part.trials and "finished" not in legend:
        traces.append(_finished_key(dark, legend))
    traces += [
        _marks(part, name, spec, dark, legend) for name in landscape.KINDS if name in part.trials and name != "waiting"
    ]
    for position, record in zip(part.positions["finished"], part.trials.get("finished", []), strict=True):
        if record.number == best:
            traces.append(_star(float(position[0]), float(position[1]), legend))
    return traces


def _field(grid: ShadeGrid, dark: bool) -> Trace:
    return {
        "type": "contour",
        "x": trial_style.numbers(grid.x),
        "y": trial_style.numbers(grid.y),
        "z": trial_style.numbers(grid.shade),
        "coloraxis": "coloraxis",
        "contours": {"coloring": "heatmap", "start": 0.1, "end": 0.9, "size": 0.1},
        "line": {"width": 0.5, "color": "rgba(20,24,27,0.5)" if dark else "rgba(255,255,255,0.45)"},
        "connectgaps": False,
        "hoverinfo": "skip",
        "showlegend": False,
        "opacity": 0.85,
    }


def _refused(grid: ShadeGrid, dark: bool, legend: set[str]) -> list[Trace]:
    """The tint of regions whose trials could not run, with its entry in the legend; none if all could run."""
    if not grid.refused.any():
        return []
    colour = trial_style.LOOKS["diverged"].colour(dark)
    tint: Trace = {
        "type": "heatmap", "x": trial_style.numbers(grid.x), "y": trial_style.numbers(grid.y),
        "z": trial_style.numbers(np.where(grid.refused, 1.0, np.nan)), "colorscale": [[0, colour], [1, colour]],
        "showscale": False, "hoverinfo": "skip", "opacity": 0.2 if dark else 0.12,
    }  # fmt: skip
    marker = {"symbol": "square", "size": 11, "color": colour, "opacity": 0.35 if dark else 0.25}
    key: Trace = {"type": "scatter", "x": [None], "y": [None], "mode": "markers", "marker": marker,
                  **_legend("refused", "nearby trials could not run", legend)}  # fmt: skip
    return [tint, key] if key["showlegend"] else [tint]


def _marks(part: landscape.Landscape, name: str, spec: SearchSpec, dark: bool, legend_names: set[str]) -> Trace:
    places, trials = part.positions[name], part.trials[name]
    many = sum(len(each) for each in part.trials.values()) > MANY
    marker = trial_style.marker(name, dark, 6 if many else None)
    legend = _legend(name, trial_style.LOOKS[name].word, legend_names)
    if name == "finished":
        marker |= {
            "color": trial_style.numbers(part.shade), "coloraxis": "coloraxis", "size": 6.5 if many else 9,
            "line": {"width": 0.9, "color": trial_style.ground(dark)},
        }  # fmt: skip
        legend |= {"showlegend": False}  # it would be black there
    return {
        "type": "scatter", "mode": "markers", "marker": marker,
        "x": trial_style.numbers(places[:, 0]), "y": trial_style.numbers(places[:, 1]),
        "text": [trial_data.hover(trial, spec) for trial in trials], "customdata": [trial.number for trial in trials],
        "hovertemplate": "%{text}<extra></extra>", **legend,
    }  # fmt: skip


def _finished_key(dark: bool, legend_names: set[str]) -> Trace:
    """The legend's entry for finished trials, in a middle shade."""
    marker = {"symbol": "circle", "size": 9, "color": trial_style.shade(0.6, dark), "line": {"width": 0}}
    legend = _legend("finished", "finished", legend_names)
    return {"type": "scatter", "x": [None], "y": [None], "mode": "markers", "marker": marker, **legend}


def _legend(key: str, word: str, legend: set[str]) -> Trace:
    """The entry of a trace in the legend, shown once for all panels; `legend` holds the keys shown already."""
    first = key not in legend
    legend.add(key)
    return {"name": word, "legendgroup": key, "showlegend": first}


def _line(part: landscape.Landscape, dark: bool, legend: set[str]) -> Trace:
    return {
        "type": "scatter", "x": trial_style.numbers(part.ridge[:, 0]), "y": trial_style.numbers(part.ridge[:, 1]),
        "mode": "lines", "hoverinfo": "skip",
        "line": {"color": trial_style.ink(dark), "width": 1.8}, **_legend("ridge", "best of each column", legend),
    }  # fmt: skip


def _iso(lines: Sequence[Iso], dark: bool, legend: set[str]) -> Trace:
    """All dotted lines of a panel in one trace, with a gap after each."""
    x = [end for line in lines for end in (*line.x, None)]
    y = [end for line in lines for end in (*line.y, None)]
    return {
        "type": "scatter", "x": x, "y": y, "mode": "lines", "hoverinfo": "skip",
        "line": {"color": trial_style.dim(dark), "width": 1.4, "dash": "dot"}, **_legend("iso", "rate / batch", legend),
    }  # fmt: skip


def _quotients(lines: Sequence[Iso], dark: bool) -> Trace:
    """The constant of each dotted line, near its upper end."""
    return {
        "type": "scatter", "mode": "text", "textposition": "top center", "hoverinfo": "skip", "showlegend": False,
        "x": [line.x[0] + ALONG * (line.x[1] - line.x[0]) for line in lines],
        "y": [line.y[0] + ALONG * (line.y[1] - line.y[0]) for line in lines],
        "text": [f"10<sup>{round(math.log10(line.quotient))}</sup>" for line in lines],
        "textfont": {"size": 10, "color": trial_style.dim(dark)},
    }  # fmt: skip


def _star(x: float, y: float, legend: set[str]) -> Trace:
    marker = {"symbol": "star", "size": 17, "color": "#f2b630", "line": {"width": 1.2, "color": trial_style.ink(False)}}
    return {
        "type": "scatter", "x": [x], "y": [y], "mode": "markers", "hoverinfo": "skip", "marker": marker,
        **_legend("best", "best", legend),
    }  # fmt: skip


def _edge(part: landscape.Landscape, dark: bool, place: Mapping[str, str]) -> list[dict[str, Any]]:
    """The memory limit: a line, and a shaded band beyond it."""
    if part.wall is None:
        return []
    colour = trial_style.LOOKS["out of memory"].colour(dark)
    common = {"xref": place["xaxis"], "yref": f"{place['yaxis']} domain", "y0": 0, "y1": 1, "layer": "below"}
    return [
        {**common, "type": "rect", "x0": part.wall, "x1": 1 + PAD, "fillcolor": colour, "opacity": 0.1,
         "line": {"width": 0}},
        {**common, "type": "line", "x0": part.wall, "x1": part.wall, "line": {"color": colour, "width": 1.4}},
    ]  # fmt: skip


def _words(part: landscape.Landscape, dark: bool, place: Mapping[str, str]) -> list[dict[str, Any]]:
    """The label of the memory limit."""
    if part.wall is None:
        return []
    return [
        {
            "xref": place["xaxis"], "yref": place["yaxis"], "showarrow": False, "x": part.wall, "y": 0,
            "text": "out of memory", "textangle": -90, "xanchor": "left", "yanchor": "bottom",
            "font": {"size": 11, "color": trial_style.LOOKS["out of memory"].colour(dark)},
        }
    ]  # fmt: skip
