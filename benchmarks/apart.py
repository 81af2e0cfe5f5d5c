"""Whether two sets of loss curves, paired by seed, can be told apart: an exact test that exchanges the two of a pair.

If it makes no difference which of a pair is real and which virtual, a pair's difference may as well have the other
sign. The statistic of a cell is the squared mean difference over the points of a curve; those of several cells are
added, each divided by its mean over all signs. With 5 seeds one cell has 32 choices of signs, and no p below 0.06: only
several cells together can be told apart.
"""

import random
import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

POINTS: Final = 10
DRAWS: Final = 20_000

Curve = Sequence[float]
Pair = tuple[Curve, Curve]


def shortened(pairs: Sequence[Pair], points: int = POINTS) -> list[list[float]]:
    """By pair, the second minus the first: means over `points` equal parts of the gradients that all curves have."""
    part = min(len(curve) for pair in pairs for curve in pair) // points
    assert part, f"a curve has fewer than {points} losses"
    means = [
        [[statistics.fmean(curve[part * i : part * (i + 1)]) for i in range(points)] for curve in pair]
        for pair in pairs
    ]
    return [[b - a for a, b in zip(first, second, strict=True)] for first, second in means]


def statistics_of(differences: Sequence[Sequence[float]]) -> list[float]:
    """The statistic for every choice of signs; the actual signs come first."""
    sums = []
    for signs in product((1, -1), repeat=len(differences)):
        signed = [[sign * value for value in pair] for sign, pair in zip(signs, differences, strict=True)]
        sums.append(sum(statistics.fmean(column) ** 2 for column in zip(*signed, strict=True)))
    mean = statistics.fmean(sums)
    return [value / mean if mean else 1.0 for value in sums]


def p_value(cells: Sequence[Sequence[Sequence[float]]], seed: int = 0) -> float:
    """Two-sided p of the differences of several cells: how often chance alone has them at least as far apart. Exact for
    one cell, else by random signs."""
    by_signs = [statistics_of(cell) for cell in cells]
    seen = sum(values[0] for values in by_signs) * (1 - 1e-12)
    if len(by_signs) == 1:
        return sum(value >= seen for value in by_signs[0]) / len(by_signs[0])
    draw = random.Random(seed)
    far = sum(sum(draw.choice(values) for values in by_signs) >= seen for _ in range(DRAWS))
    return (far + 1) / (DRAWS + 1)


def corrected(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's correction for this number of tests."""
    so_far, adjusted = 0.0, {}
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        so_far = max(so_far, min(1.0, p * (len(p_values) - rank)))
        adjusted[name] = so_far
    return adjusted
