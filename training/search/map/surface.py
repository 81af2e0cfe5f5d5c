"""The map of a search over two dimensions: an interpolated field that stays where trials are, its ridge and its wall.

Positions are those of `scales` (0 to 1 along an axis), values are shades (0 worst, 1 best). Nothing
here draws: the page and the pictures for documents do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalebook.training.search.map.scales import Scale

Array = NDArray[np.float64]

CELLS = 96  # of a field, along each axis
SMOOTH = 0.025  # width of the Gaussian over which a trial's value is averaged with its neighbours', of an axis
REACH = (0.07, 0.28)  # a cell farther than that from every finished trial is left out, whatever the spacing
NEIGHBOURS = 5  # ended trials that decide whether a cell lies where nothing trains


@dataclass(frozen=True)
class ShadeGrid:
    """`shade[j, i]` at (`x[i]`, `y[j]`); NaN where the trials say nothing."""

    x: Array
    y: Array
    shade: Array
    refused: NDArray[np.bool_]
    """Where `shade` is NaN because the nearest trials, within reach, diverged or had no memory; elsewhere nothing near
    was tried."""


def field(positions: Array, shade: Array, infeasible: Array, cells: int = CELLS) -> ShadeGrid | None:
    """Linear interpolation over the Delaunay triangles of the finished trials.

    `positions` (n, 2) are theirs, `shade` (n) their values, `infeasible` (m, 2) where a trial diverged or had not
    enough memory. Trials at one place count as their mean, and each value is averaged with those within SMOOTH, because
    trials are noisy. Left out: all beyond the hull (nothing is extrapolated), cells far from every trial, and cells
    whose nearest trials are infeasible. None where the trials span no area.
    """
    from scipy.interpolate import LinearNDInterpolator
    from scipy.spatial import Delaunay, QhullError, cKDTree

    places, mean = _merged(positions, shade)
    if len(places) < 3:
        return None
    try:
        triangles = Delaunay(places)
    except QhullError:  # all on one line
        return None
    ticks = np.linspace(0.0, 1.0, cells)
    middles = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    values = LinearNDInterpolator(triangles, _smoothed(places, mean))(middles)
    inside = np.flatnonzero(~np.isnan(values))
    apart = cKDTree(places).query(middles[inside])[0]
    reach = _reach(places, triangles.simplices)
    values[inside[apart > reach]] = np.nan
    refused = np.zeros(len(middles), dtype=np.bool_)
    if len(infeasible):
        ended = np.concatenate([places, infeasible])
        bad = np.concatenate([np.zeros(len(places)), np.ones(len(infeasible))])
        distance, nearest = cKDTree(ended).query(middles, k=min(NEIGHBOURS, len(ended)))
        weight = 1.0 / (distance**2 + 1e-6)
        refused = (weight * bad[nearest]).sum(axis=1) > 0.5 * weight.sum(axis=1)
        values[refused] = np.nan
        refused &= distance[:, 0] <= reach
    return ShadeGrid(ticks, ticks, values.reshape(cells, cells), refused.reshape(cells, cells))


def _merged(positions: Array, shade: Array) -> tuple[Array, Array]:
    """Positions without repetition, each with the mean shade of its trials."""
    places, which = np.unique(positions.round(6), axis=0, return_inverse=True)
    which = which.reshape(-1)
    return places, np.bincount(which, weights=shade) / np.bincount(which)


def _smoothed(places: Array, shade: Array) -> Array:
    distance = ((places[:, None, :] - places[None, :, :]) ** 2).sum(axis=-1)
    weight = np.exp(-distance / (2 * SMOOTH**2))
    return np.asarray((weight * shade).sum(axis=1) / weight.sum(axis=1), dtype=np.float64)


def _reach(places: Array, triangles: NDArray[np.int32]) -> float:
    """Three quarters of a long side of a triangle: a gap as wide as the usual spacing is filled, a wider one is not."""
    pairs = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    sides = np.linalg.norm(places[pairs[:, 0]] - places[pairs[:, 1]], axis=1)
    return float(np.clip(0.75 * np.quantile(sides, 0.9), *REACH))


def ridge(positions: Array, shade: Array, pruned: Array, columns: Sequence[float] | None, bins: int = 12) -> list[int]:
    """The best trial of each column, as indices into `positions`, from left to right.

    `columns` are the positions of the first dimension's values where it has few; None cuts a continuous one in `bins`.
    Left out: a column without a finished trial, and one whose only finished trial is what the pruner has left of
    several (`pruned` are the positions of the others), which was not compared with any other at its end.
    """

    def column_of(places: Array) -> NDArray[np.intp]:
        if columns is None:
            return np.asarray(np.clip((places[:, 0] * bins).astype(np.intp), 0, bins - 1), dtype=np.intp)
        return np.asarray(np.abs(places[:, :1] - np.asarray(columns)[None, :]).argmin(axis=1), dtype=np.intp)

    column, cut = column_of(positions), set(column_of(pruned).tolist())
    best_trials = []
    for bin_ in np.unique(column):
        members = np.flatnonzero(column == bin_)
        if len(members) > 1 or int(bin_) not in cut:
            best_trials.append(int(members[shade[members].argmax()]))
    return sorted(best_trials, key=lambda i: positions[i, 0])


def wall(fits: Sequence[float], too_large: Sequence[float]) -> float | None:
    """Where memory ends along an axis: halfway between the last position that fits and the first that does not.

    `fits` are the positions of trials that had enough memory, whatever else became of them, `too_large` of those that
    had not. None without the latter, and if some fit beyond every one that did not.
    """
    largest = max(fits, default=None)
    beyond = [position for position in too_large if largest is None or position > largest]
    if not beyond:
        return None
    first = min(beyond)
    return first if largest is None else (largest + first) / 2


@dataclass(frozen=True)
class Iso:
    """A line of constant learning rate over batch size: two points, and the quotient."""

    x: tuple[float, float]
    y: tuple[float, float]
    quotient: float


MOST_LINES = 5


def iso_lines(batch: Scale, rate: Scale, rule: str, per: float) -> list[Iso]:
    """Where (rate that is applied) / (batch size) is constant, batch along x and the rate as asked for along y.

    With the rule `linear` the rate applied is asked * batch / per, with `sqrt` asked * root(batch / per), else what was
    asked for. The lines are straight only where both axes are logarithmic; empty otherwise.
    """
    if not (batch.log and rate.log):
        return []
    power = {"linear": 1.0, "sqrt": 0.5}.get(rule, 0.0)

    def quotient(size: float, base_rate: float) -> float:
        return base_rate * (size / per) ** power / size if power else base_rate / size

    def base_rate(size: float, constant: float) -> float:
        return constant * size / (size / per) ** power if power else constant * size

    corners = [quotient(size, value) for size in (batch.low, batch.high) for value in (rate.low, rate.high)]
    lines = []
    for exponent in range(int(np.floor(np.log10(min(corners)))), int(np.ceil(np.log10(max(corners)))) + 1):
        ends = [
            (0.0, rate.position(base_rate(batch.low, 10.0**exponent))),
            (1.0, rate.position(base_rate(batch.high, 10.0**exponent))),
        ]
        if (inside := _clipped(ends[0], ends[1])) is not None:
            lines.append(Iso(*inside, 10.0**exponent))
    every = -(-len(lines) // MOST_LINES)
    return lines[::every] if lines else []


def _clipped(
    start: tuple[float, float], end: tuple[float, float]
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """The part of a line from x = 0 to x = 1 with 0 < y < 1."""
    (x0, y0), (x1, y1) = start, end
    if y0 == y1:
        return ((x0, x1), (y0, y1)) if 0 < y0 < 1 else None
    slope = (y1 - y0) / (x1 - x0)
    crossings = sorted((x0 + (edge - y0) / slope) for edge in (0.0, 1.0))
    left, right = max(x0, crossings[0]), min(x1, crossings[1])
    if right - left < 0.08:  # a corner too short to be a line
        return None
    return (left, right), (y0 + slope * (left - x0), y0 + slope * (right - x0))
