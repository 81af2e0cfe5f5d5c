"""Where a curve is at a target, between two validations."""

import math
from collections.abc import Sequence

from scalebook.training.claims.intervals import Amount


def crossing(at: Sequence[float], values: Sequence[float], target: float, lower: bool) -> Amount | None:
    """What it took until the best value so far was `target`; None for a curve without values.

    `at` (of values on an axis, rising) and `values` are a run's validations. Between two of them what it took is read
    off a monotone curve through the bests so far (Fritsch and Carlson 1980), over the logarithm of `at`, on which
    training curves are closest to straight: rounded up to the next validation, the smaller side of a ratio would lose
    most. A curve that never is there is censored at its end; one whose first value is there took that or less.
    """
    sign = 1 if lower else -1
    points: list[tuple[float, float]] = []
    reached = None
    for place, value in zip(at, values, strict=True):
        if math.isnan(value) or (points and sign * value >= points[-1][0]):
            continue
        points.append((sign * value, place))
        if reached is None and sign * value <= sign * target:
            reached = len(points) - 1
        elif reached is not None:
            break  # one point beyond it shapes the curve
    if reached is None:
        return Amount(at[-1], censored=True) if len(at) else None
    if reached == 0:
        return Amount(points[0][1], at_once=True)
    around = [(value, place) for value, place in points[max(0, reached - 2) :] if math.isfinite(value)]
    if points[reached][0] == sign * target or not all(math.isfinite(points[i][0]) for i in (reached - 1, reached)):
        return Amount(points[reached][1])
    return Amount(_between(around, sign * target))


def _between(points: Sequence[tuple[float, float]], target: float) -> float:
    """The place at `target`, which lies within the values of the points; these fall, and their places rise."""
    from scipy.interpolate import PchipInterpolator  # type: ignore[import-untyped]  # ships no types

    logs = all(place > 0 for _, place in points)
    x, y = [-value for value, _ in points], [math.log(place) if logs else place for _, place in points]
    place = float(PchipInterpolator(x, y)(-target))
    return math.exp(place) if logs else place
