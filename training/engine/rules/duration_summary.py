"""A summary of durations: mean, spread, and the distribution in a hundred values. Imports no torch."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

VALUES: Final = 100


@dataclass(frozen=True)
class DurationSummary:
    """Durations in seconds: how many, their mean, `cv` (standard deviation / mean), and `values`: by size, the mean of
    each hundredth of them, so that together these have the same mean, and the tail."""

    count: int
    mean: float
    cv: float
    values: list[float]


def took(counted: Iterable[tuple[float, float]], total: float, squares: float) -> DurationSummary | None:
    """A summary of (seconds, how often), where the seconds may be bins. `total` and `squares`, the sums of the seconds
    and of their squares, are exact. None if there are none."""
    by_size = sorted(pair for pair in counted if pair[1])
    count = sum(often for _, often in by_size)
    if not count or not total:
        return None
    mean = total / count
    parts = _hundredths(by_size, count / VALUES)
    scale = mean / (math.fsum(parts) / VALUES)
    variance = max(0.0, squares / count - mean * mean)
    return DurationSummary(round(count), mean, math.sqrt(variance) / mean, [part * scale for part in parts])


def together(several: Sequence[DurationSummary]) -> DurationSummary | None:
    """One summary of several, each weighted by its count; None of none."""
    counted = [(value, one.count / len(one.values)) for one in several for value in one.values]
    total = math.fsum(one.count * one.mean for one in several)
    return took(counted, total, math.fsum(one.count * one.mean**2 * (1 + one.cv**2) for one in several))


def _hundredths(by_size: Sequence[tuple[float, float]], size: float) -> list[float]:
    """The mean of each of VALUES consecutive parts of `size`."""
    parts: list[float] = []
    room, sum_ = size, 0.0
    for value, often in by_size:
        left = often
        while left > room and len(parts) < VALUES - 1:
            parts.append((sum_ + room * value) / size)
            left, room, sum_ = left - room, size, 0.0
        room, sum_ = room - left, sum_ + left * value
    return [*parts, *[sum_ / max(size - room, 1e-12)] * (VALUES - len(parts))]
