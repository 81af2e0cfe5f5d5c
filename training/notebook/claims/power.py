"""How likely a claim is to be resolved: its whole procedure, simulated with drawn runs, before there are any."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scalebook.training.notebook.claims.intervals import ALPHA, FEWEST, PAIRED_FROM, Amount
from scalebook.training.notebook.claims.looks import OTHER_RUNS, Growths, History, level_of
from scalebook.training.tracking import names

Array = npt.NDArray[np.float64]

ENOUGH: Final = 0.8
"""Share of cases in which enough seeds resolve a claim."""
MOST_SEEDS: Final = 64
TRIALS: Final = 2000
"""One standard error of a share of 30 % is 1 %."""
DRAWN: Final = 400_000
"""Values at most that are drawn at once; with more seeds, points or sides there are fewer trials."""
WORSE: Final = 0.15
"""By how much another point is worse than the best, in logarithms of the amount: rates are tried about so far apart."""
SPREAD: Final = {True: 0.15, False: 0.05}
"""Standard deviation of a run's logarithm, if no runs show it: of amounts; of best values and speeds."""
AWAY: Final = {True: 1.25, False: 1.1}
"""How far from the bound the truth is taken to lie, likewise."""


@dataclass(frozen=True)
class DrawnSide:
    """A side: its number of seeds, of points among which it is chosen, spread and mean of a run's logarithm."""

    seeds: int
    points: int
    spread: float
    level: float = 0.0


Pair = tuple[int, int | None]
"""A side over another one, or by itself, as indices of sides."""


@dataclass(frozen=True)
class Design:
    """What a claim is judged by. Each row is a pair, or a pair over a pair; bounds are logarithms."""

    sides: tuple[DrawnSide, ...]
    rows: tuple[tuple[Pair, ...], ...]
    low: float | None
    high: float | None
    beside: int = 1
    """Claims that are corrected together; each is held to the level of the strictest."""
    before: History = field(default_factory=History)
    """The looks before this one."""

    def with_seeds(self, seeds: int) -> "Design":
        return replace(self, sides=tuple(replace(side, seeds=seeds) for side in self.sides))

    @property
    def seeds(self) -> int:
        """Seeds of the side that has the fewest."""
        return min(side.seeds for side in self.sides)

    @property
    def growths(self) -> Growths:
        """Those of all looks, this one included."""
        if not self.before.seeds:
            return ()
        grown = self.seeds / self.before.seeds[-1]
        return (*self.before.growths, grown if grown > 1 else OTHER_RUNS)


@dataclass(frozen=True)
class Power:
    """`share`: how often it would be supported with these seeds if the true figure, or ratio, were `truth`."""

    seeds: int
    truth: float
    share: float
    enough: int | None
    """Seeds with which that share is ENOUGH; None where MOST_SEEDS are too few."""
    spread: float
    measured: bool
    """Whether the spread is measured by runs; else it is assumed."""


def power(design: Design, truth: float, measured: bool) -> Power:
    """The power of a design; `truth` is that of the levels of its sides."""
    enough = _fewest(design, lambda shares: shares[0])
    spread = statistics.fmean(side.spread for side in design.sides)
    return Power(design.seeds, truth, shares(design)[0], enough, spread, measured)


def resolving(design: Design) -> int | None:
    """Fewest seeds with which a claim is supported or refuted in ENOUGH of all cases; None: more than MOST_SEEDS."""
    return _fewest(design, sum, design.seeds + 1)


def spread_of(sides: Sequence[Sequence[Amount]], axis: bool) -> tuple[float, bool]:
    """The pooled standard deviation of a run's logarithm, over sides of two or more runs; whether it is measured."""
    logs = [[math.log(amount.value) for amount in side if amount.value > 0] for side in sides]
    several = [side for side in logs if len(side) > 1]
    if not several:
        return SPREAD[axis], False
    degrees = sum(len(side) - 1 for side in several)
    return math.sqrt(sum(statistics.variance(side) * (len(side) - 1) for side in several) / degrees), True


def truth_within_bounds(figure: str, at_least: float | None, at_most: float | None) -> float | None:
    """The truth for which a claim's power is computed, well within its bounds. None if they have no logarithm."""
    bounds = [bound for bound in (at_least, at_most) if bound is not None]
    if any(bound <= 0 for bound in bounds):
        return None
    if len(bounds) == 2:
        return math.sqrt(bounds[0] * bounds[1])
    factor = AWAY[figure in names.AXES]
    return bounds[0] * factor if at_least is not None else bounds[0] / factor


@lru_cache(maxsize=4096)
def shares(design: Design) -> tuple[float, float]:
    """The shares of cases in which it is supported, and refuted. The runs drawn are the same at each call."""
    if design.seeds < FEWEST:
        return 0.0, 0.0
    values = sum(side.seeds * side.points for side in design.sides)
    chance, trials = np.random.default_rng(1), max(200, min(TRIALS, DRAWN // values))
    drawn = [_side(side, chance, trials) for side in design.sides]
    supported, refuted = np.ones(trials, bool), np.zeros(trials, bool)
    inner = level_of(ALPHA / design.beside, design.growths)
    outer = level_of(ALPHA / design.beside / len(design.rows), design.growths)
    for row in design.rows:
        estimate, held, variance, degrees = _row(row, drawn)
        first, last, error = np.minimum(estimate, held), np.maximum(estimate, held), np.sqrt(variance)
        inside = _quantiles(1 - inner / 2, degrees) * error
        outside = _quantiles(1 - outer / 2, degrees) * error
        if design.low is not None:
            supported &= first - inside >= design.low
            refuted |= last + outside <= design.low
        if design.high is not None:
            supported &= last + inside <= design.high
            refuted |= first - outside >= design.high
    return float(np.mean(supported & ~refuted)), float(np.mean(refuted))


def _fewest(design: Design, share: Callable[[tuple[float, float]], float], least: int = FEWEST) -> int | None:
    low, high = max(FEWEST, least) - 1, max(FEWEST, least)
    if high > MOST_SEEDS:
        return None
    while share(shares(design.with_seeds(high))) < ENOUGH:
        if high >= MOST_SEEDS:
            return None
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if share(shares(design.with_seeds(middle))) >= ENOUGH else (middle, high)
    return high


def _side(side: DrawnSide, chance: np.random.Generator, trials: int) -> tuple[Array, Array]:
    """Logarithms by trial and seed at the point that all seeds choose, and at that which the others choose."""
    logs = side.level + side.spread * chance.standard_normal((trials, side.points, side.seeds))
    logs += WORSE * np.abs(np.arange(side.points) - side.points // 2)[None, :, None]
    if side.points == 1:
        return logs[:, 0], logs[:, 0]
    took = np.exp(logs)
    sums = took.sum(axis=2)
    chosen = sums.argmin(axis=1)[:, None, None]
    by_others = (sums[:, :, None] - took).argmin(axis=1)[:, None, :]
    return np.take_along_axis(logs, chosen, 1)[:, 0], np.take_along_axis(logs, by_others, 1)[:, 0]


def _row(row: Sequence[Pair], drawn: Sequence[tuple[Array, Array]]) -> tuple[Array, Array, Array, Array]:
    """By trial: the estimate, that where the others choose, the variance, and its degrees of freedom."""
    (estimate, held, variance, degrees), *others = (_pair(pair, drawn) for pair in row)
    for its, its_held, its_variance, its_degrees in others:
        estimate, held = estimate - its, held - its_held
        variance, degrees = _sum(variance, degrees, its_variance, its_degrees)
    return estimate, held, variance, degrees


def _pair(pair: Pair, drawn: Sequence[tuple[Array, Array]]) -> tuple[Array, Array, Array, Array]:
    above, held = drawn[pair[0]]
    n = above.shape[1]
    if pair[1] is None:
        of_one = _variance(above)
        return above.mean(axis=1), held.mean(axis=1), of_one, np.full_like(of_one, n - 1)
    below, held_below = drawn[pair[1]]
    mine, theirs = _variance(above), _variance(below)
    variance, degrees = _sum(mine, np.full_like(mine, n - 1), theirs, np.full_like(theirs, below.shape[1] - 1))
    if below.shape[1] == n:
        common = ((above - above.mean(axis=1, keepdims=True)) * (below - below.mean(axis=1, keepdims=True))).sum(axis=1)
        r = np.clip(common / (n * (n - 1)) / np.sqrt(mine * theirs), -1 + 1e-12, 1 - 1e-12)
        together = r * np.sqrt((n - 2) / (1 - r * r)) > _quantile(PAIRED_FROM, n - 2)
        variance = np.where(together, _variance(above - below), variance)
        degrees = np.where(together, n - 1, degrees)
    return (above.mean(axis=1) - below.mean(axis=1), held.mean(axis=1) - held_below.mean(axis=1), variance, degrees)


def _variance(values: Array) -> Array:
    """Of the mean over seeds, by trial; not 0, so that what is certain has a quotient too."""
    return np.asarray(values.var(axis=1, ddof=1) / values.shape[1] + 1e-30)


def _sum(one: Array, degrees: Array, other: Array, its_degrees: Array) -> tuple[Array, Array]:
    """Variances add; degrees of freedom by Welch and Satterthwaite."""
    both = one + other
    return both, both**2 / (one**2 / degrees + other**2 / its_degrees)


def _quantiles(share: float, degrees: Array) -> Array:
    """Of Student's t, read off a table in which its values for 1 / degrees are close to straight."""
    inverse, values = _table(share)
    return np.interp(1 / degrees, inverse, values)


@lru_cache(maxsize=64)
def _table(share: float) -> tuple[Array, Array]:
    inverse = np.linspace(1e-3, 1.0, 400)
    return inverse, np.asarray(_quantile(share, 1 / inverse))


def _quantile(share: float, degrees: Any) -> Any:
    from scipy.special import stdtrit

    return stdtrit(degrees, share)
