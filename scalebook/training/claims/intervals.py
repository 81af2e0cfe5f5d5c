"""95 % intervals over seeds: of a mean, and of a ratio of two, with runs among them that never got to the target."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scalebook.training.estimate import t_975

FEWEST: Final = 3
"""Seeds (of a ratio: on each side, or pairs) below which there is no interval."""


@dataclass(frozen=True)
class Amount:
    """What one run took or reached. `censored`: it ended at `value` without the target, so it takes more."""

    value: float
    censored: bool = False


@dataclass(frozen=True)
class Confidence:
    """An estimate and where the true value lies with 95 % confidence. `paired`: both sides had the same seeds."""

    value: float
    low: float
    high: float
    n: int
    """Seeds, or pairs of them; without pairs those of the smaller side."""
    paired: bool = False


def mean_interval(amounts: Sequence[Amount]) -> Confidence | None:
    """The mean, by Student's t with n - 1 degrees of freedom (Student 1908); None for fewer than FEWEST amounts.

    A run that was censored counts with what it took until its end: this is the restricted mean (Irwin 1949; Royston and
    Parmar 2013), which the mean is not below, so the lower end holds and the upper one is infinite.
    """
    values = [amount.value for amount in amounts]
    if len(values) < FEWEST:
        return None
    mean, half = statistics.fmean(values), t_975(len(values) - 1) * _error(values)
    censored = any(amount.censored for amount in amounts)
    return Confidence(mean, mean - half, math.inf if censored else mean + half, len(values))


def ratio_interval(these: Mapping[int, Amount], others: Mapping[int, Amount]) -> Confidence | None:
    """How many times the `others` (by seed) `these` take: the ratio of geometric means, its interval made on logs.

    Where FEWEST seeds are on both sides the ratios of these pairs are taken (Student's t, n - 1 degrees of freedom),
    else both sides by themselves (Welch 1947). None for fewer than FEWEST, and for values that are not above 0.
    Censored runs as in `mean_interval`: among `these` they leave the ratio without an upper end, among the `others`
    without a lower one.
    """
    amounts = [*these.values(), *others.values()]
    if any(not (amount.value > 0 and math.isfinite(amount.value)) for amount in amounts):
        return None
    both = sorted(set(these) & set(others))
    if len(both) >= FEWEST:
        logs = [math.log(these[seed].value / others[seed].value) for seed in both]
        mean, half, n = statistics.fmean(logs), t_975(len(logs) - 1) * _error(logs), len(logs)
    elif min(len(these), len(others)) >= FEWEST:
        mine, theirs = ([math.log(amount.value) for amount in side.values()] for side in (these, others))
        mean = statistics.fmean(mine) - statistics.fmean(theirs)
        half, n = _welch(mine, theirs), min(len(mine), len(theirs))
    else:
        return None
    paired = len(both) >= FEWEST
    seeds = both if paired else []
    missed = any(these[seed].censored for seed in seeds or these)
    base_missed = any(others[seed].censored for seed in seeds or others)
    low = 0.0 if base_missed else math.exp(mean - half)
    high = math.inf if missed else math.exp(mean + half)
    return Confidence(math.exp(mean), low, high, n, paired)


def _error(values: Sequence[float]) -> float:
    """Standard error of the mean."""
    return statistics.stdev(values) / math.sqrt(len(values))


def _welch(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """Half the interval of the difference; degrees of freedom by Welch and Satterthwaite, rounded down."""
    a, b = _error(mine) ** 2, _error(theirs) ** 2
    if a + b == 0:
        return 0.0
    degrees = (a + b) ** 2 / (a**2 / (len(mine) - 1) + b**2 / (len(theirs) - 1))
    return t_975(max(1, math.floor(degrees + 1e-9))) * math.sqrt(a + b)
