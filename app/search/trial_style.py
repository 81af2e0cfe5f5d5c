"""The look of trials in all charts: a colour and a marker for each state, shades for values.

Markers differ between states, and shades differ in lightness, so that both are clear to the colour-blind.
"""

import math
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from scalebook.app.shared import charts
from scalebook.training.search.map import Shades, landscape, shades


@dataclass(frozen=True)
class Look:
    """`colours` on the light and on the dark ground; `symbol` as plotly names it; `word` in legends."""

    colours: tuple[str, str]
    symbol: str
    word: str
    size: float = 8

    def colour(self, dark: bool) -> str:
        return self.colours[dark]


LOOKS = {
    kind: Look((landscape.COLOURS[kind], dark), symbol, "infeasible otherwise" if kind == "infeasible" else kind, size)
    for kind, dark, symbol, size in (
        ("finished", "#6cc894", "circle", 8.0),
        ("pruned", "#ac97dd", "triangle-down", 7.0),
        ("out of memory", "#f0a550", "square", 8.0),
        ("diverged", "#ec8cc6", "x-thin", 7.0),
        ("infeasible", "#c9b98c", "hourglass", 8.0),
        ("failed", "#f28b7e", "cross", 8.0),
        ("running", "#5cc3c6", "circle-open", 9.0),
        ("waiting", "#e2b65a", "diamond-open", 7.0),
    )
}
"""Looks by `scalebook.training.search.map.landscape.KINDS`."""
LOG_TICKS = 9
SHADES = (shades.STOPS, ("#39303a", "#33485a", "#2d6672", "#3b8c87", "#72b38d", "#b9d68f", "#f8f3b4"))
"""Shades from the worst to the best value, on a light and on a dark ground; the best contrasts most with the ground."""


def colorscale(dark: bool) -> list[tuple[float, str]]:
    """Plotly's colour scale for shades, from 0 (the worst value) to 1 (the best)."""
    stops = SHADES[dark]
    return [(i / (len(stops) - 1), colour) for i, colour in enumerate(stops)]


def shade(position: float, dark: bool) -> str:
    """One colour of the scale, between its stops too."""
    return shades.colour_at(position, SHADES[dark])


def ink(dark: bool) -> str:
    """The colour of a best trial, and of text on a chart."""
    return "#e4e8e8" if dark else "#1c2327"


def dim(dark: bool) -> str:
    """The colour of elements in the background."""
    return "#98a4a4" if dark else "#66716f"


def ground(dark: bool) -> str:
    """The background colour of charts, also of outlines between markers that touch."""
    return "#14181b" if dark else "#fbfbfa"


def colour_axis(shades: Shades, title: str, dark: bool) -> dict[str, object]:
    """A colour bar labelled with values."""
    ticks = shades.ticks()
    return {
        "cmin": 0,
        "cmax": 1,
        "colorscale": colorscale(dark),
        "colorbar": {
            "title": {"text": title, "side": "right", "font": {"size": 12, "color": dim(dark)}},
            "tickvals": [position for position, _ in ticks],
            "ticktext": [label for _, label in ticks],
            "tickfont": {"size": 11.5, "color": dim(dark)},
            "thickness": 11,
            "len": 1.0,
            "outlinewidth": 0,
            "ticks": "",
            "x": 1.01,
            "xpad": 4,
        },
    }


def log_axis(low: float, high: float) -> dict[str, object]:
    """A logarithmic axis from `low` to `high`, each of its ticks written out."""
    for factors in ((1, 2, 5), (1, 3), (1,)):
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [factor * 10.0**decade for decade in decades for factor in factors]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) <= LOG_TICKS:
            break
    return {
        "type": "log", "range": [math.log10(low), math.log10(high)], "tickvals": inside,
        "ticktext": [f"{tick:g}" for tick in inside],
    }  # fmt: skip


def figure(dark: bool, height: int) -> go.Figure:
    """An empty figure in our template; hovering shows a single point."""
    return go.Figure(layout={"template": charts.template(dark), "height": height, "hovermode": "closest"})


def marker(kind: str, dark: bool, size: float | None = None) -> dict[str, object]:
    """The marker of one kind of trial; thin crosses are drawn by their outline alone."""
    look = LOOKS[kind]
    colour = look.colour(dark)
    outline = {"width": 1.8, "color": colour} if look.symbol == "x-thin" else {"width": 0.7, "color": ground(dark)}
    if look.symbol.endswith("open"):
        outline = {"width": 1.8, "color": colour}
    return {"symbol": look.symbol, "size": size or look.size, "color": colour, "line": outline}


def numbers(values: NDArray[np.floating]) -> list[object]:
    """An array of any shape as lists, with None for NaN. Arrays would be sent packed, and Plotly does not recognize
    packed data as unchanged: it would draw the chart twice (`charts.draw`)."""
    rounded = np.round(values.astype(np.float64), 5).astype(object)
    rounded[np.isnan(values)] = None
    listed: list[object] = rounded.tolist()
    return listed
