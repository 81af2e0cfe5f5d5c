"""Curves for drawing: several seeds as one mean curve with its interval, and no more points than can be seen."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scalebook.training.tracking.estimates import estimate
from scalebook.training.tracking.run_reader import MetricCurve

POINTS = 200
FEW: Final = 5
"""Runs from which a curve has an interval. With fewer, Student's t makes it several times as wide as the runs lie
apart: of two runs 18 times. With five, both are about as wide."""


@dataclass(frozen=True)
class MeanCurve:
    """Mean over the runs at each `x`, and the ends of a band around it: the 95 % interval of the mean (Student's t), or
    the range of the runs where they are fewer than FEW."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def mean_curve(curves: Sequence[MetricCurve], axis: str) -> MeanCurve | None:
    """The mean over the range of `axis` that all curves cover, by linear interpolation; None if there is no such
    range. A band does not go below 0 where no run does."""
    points = [curve.on(axis) for curve in curves if curve.axis(axis)]
    if len(points) < 2:
        return None
    first, last = max(x[0] for x, _ in points), min(x[-1] for x, _ in points)
    inside = [position for position in points[0][0] if first <= position <= last]
    grid = sorted({first, last, *inside[:: max(1, len(inside) // POINTS)]})
    if first > last:
        return None
    rows = [
        (position, *_with_band(values))
        for position in grid
        if (values := [value for x, y in points if math.isfinite(value := at_x(x, y, position))])
    ]
    return MeanCurve(
        [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], [row[3] for row in rows]
    )


def _with_band(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and band of finite values."""
    lowest, highest = min(values), max(values)
    mean = estimate(values)
    assert mean is not None, "they are finite"
    if mean.half is None or len(values) < FEW:
        return mean.mean, lowest, highest
    low = mean.mean - mean.half
    return mean.mean, lowest if low <= 0 <= lowest else low, mean.mean + mean.half


def at_x(x: Sequence[float], y: Sequence[float], position: float) -> float:
    """The value at `position`, by linear interpolation; `x` is increasing and contains `position`."""
    right = bisect_left(x, position)
    if right < len(x) and x[right] == position:
        return y[right]
    share = (position - x[right - 1]) / (x[right] - x[right - 1])
    return y[right - 1] + share * (y[right] - y[right - 1])


def thin(x: Sequence[float], y: Sequence[float], points: int) -> tuple[list[float], list[float]]:
    """At most about `points` points of a curve: the lowest and the highest of each section, so that no spike is
    lost."""
    if len(x) <= points:
        return list(x), list(y)
    stretch = -(-len(x) * 2 // points)  # ceil; two points are kept of each stretch
    indices: list[int] = []
    for start in range(0, len(x), stretch):
        part = range(start, min(start + stretch, len(x)))
        indices.extend(sorted({min(part, key=y.__getitem__), max(part, key=y.__getitem__)}))
    if indices[-1] != len(x) - 1:
        indices.append(len(x) - 1)
    return [x[i] for i in indices], [y[i] for i in indices]


def smooth(values: Sequence[float], weight: float) -> list[float]:
    """Exponential moving average: each point keeps `weight` of the average before it, 0 to below 1.

    With bias correction at the start (Kingma & Ba 2015). Values that are not finite are kept, and not averaged.
    """
    assert 0.0 <= weight < 1.0, weight
    averages, average, share = [], 0.0, 0.0
    for value in values:
        if not math.isfinite(value):
            averages.append(value)
            continue
        average = weight * average + (1.0 - weight) * value
        share = weight * share + (1.0 - weight)
        averages.append(average / share)
    return averages
