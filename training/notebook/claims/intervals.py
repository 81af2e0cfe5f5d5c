"""Confidence intervals over seeds: of a mean, and of a ratio of two, with runs among them that missed the target; and
where a curve is at a target, between two validations."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scalebook.training.tracking.estimate import student_quantile

FEWEST: Final = 3
"""Seeds (of a ratio: on each side, or pairs) below which there is no interval."""
ALPHA: Final = 0.05
"""The chance of a wrong verdict that is allowed, for all looks at all claims of a notebook together."""
PAIRED_FROM: Final = 0.95
"""Quantile of the correlation of unrelated sides above which pairs are used."""
PAIRED_FROM_BEFORE: Final = 0.98
"""The same in archives of form 1."""
ROUNDING: Final = 1e-12
"""Share of a figure that counts as no difference."""


@dataclass(frozen=True)
class Amount:
    """What one run took or reached.

    `censored`: it ended at `value` without the target, so it takes more. `at_once`: its first validation, at `value`,
    was there already, so it takes that or less.
    """

    value: float
    censored: bool = False
    at_once: bool = False


@dataclass(frozen=True)
class Confidence:
    """An estimate, and the interval that holds the true value at a level of confidence that is asked for.

    `held` is the estimate at the points that the other seeds choose for each seed (the same as `estimate` unless seeds
    both choose and judge), `error` the standard error, `degrees` its degrees of freedom; all of logarithms if `logs`.
    """

    estimate: float
    held: float
    error: float
    degrees: float
    n: int
    """Seeds, or pairs of them; without pairs those of the smaller side."""
    logs: bool = False
    paired: bool = False
    """Both sides had the same seeds, and what they took rose and fell together."""
    no_low: bool = False
    no_high: bool = False
    level: float = 1 - ALPHA
    """The level of confidence of `low` and `high`; above 1 - ALPHA where they have to hold over several looks."""
    centred: bool = True
    """Whether `value` is in the middle of the two estimates; else it is `estimate`, as in archives of form 1."""

    @property
    def first(self) -> float:
        """The smaller one of the two estimates."""
        return min(self.estimate, self.held)

    @property
    def last(self) -> float:
        return max(self.estimate, self.held)

    @property
    def middle(self) -> float:
        return (self.estimate + self.held) / 2 if self.centred else self.estimate

    @property
    def value(self) -> float:
        return math.exp(self.middle) if self.logs else self.middle

    @property
    def low(self) -> float:
        return self.ends(self.level)[0]

    @property
    def high(self) -> float:
        """Infinite where a run took more than is known."""
        return self.ends(self.level)[1]

    def ends(self, level: float) -> tuple[float, float]:
        """Both ends at a level of confidence, 0 to below 1."""
        half = student_quantile(0.5 + level / 2, self.degrees) * self.error if self.error else 0.0
        low, high = self.first - half, self.last + half
        if self.logs:
            low, high = math.exp(low), math.exp(high)
        return (0.0 if self.logs else -math.inf) if self.no_low else low, math.inf if self.no_high else high

    def over(self, other: "Confidence") -> "Confidence":
        """The quotient of this ratio and the ratio `other`, if their runs have nothing in common.

        The variances add, and so do their degrees of freedom, by Welch (1947).
        """
        assert self.logs
        assert other.logs
        error, degrees = _sum((self.error, self.degrees), (other.error, other.degrees))
        return Confidence(
            self.estimate - other.estimate, self.held - other.held, error, degrees, min(self.n, other.n), logs=True,
            paired=self.paired or other.paired,
            no_low=self.no_low or other.no_high,
            no_high=self.no_high or other.no_low,
        )  # fmt: skip

    def chance_above(self, bound: float) -> float:
        """The one-sided p-value of an estimate so far above `bound`; 1 if it is not above."""
        return self._chance(bound, self.first, 1) if not self.no_low else 1.0

    def chance_below(self, bound: float) -> float:
        """Likewise below `bound`."""
        return self._chance(bound, self.last, -1) if not self.no_high else 1.0

    def _chance(self, bound: float, end: float, sign: int) -> float:
        if self.logs:
            bound = math.log(bound) if bound > 0 else -math.inf
        beyond = sign * (end - bound)
        if not beyond > ROUNDING * max(1.0, abs(bound)):
            return 1.0
        if not self.error:
            return 0.0
        from scipy.special import stdtr

        return float(stdtr(self.degrees, -beyond / self.error))


def mean_interval(amounts: Sequence[Amount], left_out: Sequence[Amount] = ()) -> Confidence | None:
    """The mean, by Student's t with n - 1 degrees of freedom (Student 1908); None for fewer than FEWEST amounts.

    A run that was censored counts with what it took until its end: this is the restricted mean (Irwin 1949; Royston and
    Parmar 2013), a lower bound of the mean, so the lower end holds and the upper one is infinite. A run that was at the
    target at once leaves the lower end open. `left_out` as in `ratio_interval`.
    """
    values = [amount.value for amount in amounts]
    if len(values) < FEWEST:
        return None
    mean, n = statistics.fmean(values), len(values)
    held = statistics.fmean(amount.value for amount in left_out) if left_out else mean
    every = [*amounts, *left_out]
    return Confidence(
        mean, held, _error(values), n - 1, n,
        no_low=any(amount.at_once for amount in every),
        no_high=any(amount.censored for amount in every),
    )  # fmt: skip


def ratio_interval(
    these: Mapping[int, Amount],
    others: Mapping[int, Amount],
    left_out: tuple[Mapping[int, Amount], Mapping[int, Amount]] | None = None,
    paired_from: float = PAIRED_FROM,
) -> Confidence | None:
    """The ratio of `these` to the `others`, by seed: of their geometric means, its interval made on logs.

    Both sides by themselves (Welch 1947), or the ratios of pairs with the same seed where the pairs are seen to
    correlate (Student's t of the correlation, one-sided, 5 %): with few seeds a pair that does not correlate only
    costs degrees of freedom. None for fewer than FEWEST, and for values that are not above 0. Censored runs as in
    `mean_interval`: among `these` they leave the ratio without an upper end, among the `others` without a lower one.

    `left_out`: where the points of the sides were chosen by the same seeds, what each seed says of the points that the
    others choose (cross-fitting: Stone 1974). Choosing by all seeds flatters a side, choosing by one seed less burdens
    it; the interval spans both estimates.
    """
    sides = (these, others, *(left_out or ()))
    if any(not (amount.value > 0 and math.isfinite(amount.value)) for side in sides for amount in side.values()):
        return None
    if min(len(these), len(others)) < FEWEST:
        return None
    mine, theirs = (_logs(side) for side in (these, others))
    estimate, n = statistics.fmean(mine.values()) - statistics.fmean(theirs.values()), min(len(mine), len(theirs))
    paired = set(mine) == set(theirs) and _correlate(mine, theirs, paired_from)
    if paired:
        error, degrees = _error([mine[seed] - theirs[seed] for seed in mine]), float(n - 1)
    else:
        error, degrees = _welch([*mine.values()], [*theirs.values()])
    held = estimate
    if left_out and all(left_out):
        held_mine, held_theirs = (statistics.fmean(_logs(side).values()) for side in left_out)
        held = held_mine - held_theirs
    above, below = [these, *(left_out or ())[:1]], [others, *(left_out or ())[1:]]
    return Confidence(
        estimate, held, error, degrees, n, logs=True, paired=paired,
        no_low=_any(above, "at_once") or _any(below, "censored"),
        no_high=_any(above, "censored") or _any(below, "at_once"),
    )  # fmt: skip


def _logs(side: Mapping[int, Amount]) -> dict[int, float]:
    return {seed: math.log(amount.value) for seed, amount in side.items()}


def _any(sides: Sequence[Mapping[int, Amount]], what: str) -> bool:
    return any(getattr(amount, what) for side in sides for amount in side.values())


def _error(values: Sequence[float]) -> float:
    """Standard error of the mean; 0 where the values differ by rounding alone."""
    error = statistics.stdev(values) / math.sqrt(len(values))
    return error if error > ROUNDING * max(abs(value) for value in values) else 0.0


def _correlate(mine: Mapping[int, float], theirs: Mapping[int, float], paired_from: float) -> bool:
    """Whether they rise and fall together more than that share of unrelated pairs of sides."""
    seeds = sorted(mine)
    x, y = [mine[seed] for seed in seeds], [theirs[seed] for seed in seeds]
    if not (_error(x) and _error(y)):
        return False
    r = statistics.correlation(x, y)
    degrees = len(seeds) - 2
    if abs(r) >= 1 or r <= 0:
        return r > 0
    return r * math.sqrt(degrees / (1 - r * r)) > student_quantile(paired_from, degrees)


def _welch(mine: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Standard error of the difference of the means, and its degrees of freedom by Welch and Satterthwaite."""
    return _sum((_error(mine), len(mine) - 1), (_error(theirs), len(theirs) - 1))


def _sum(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Standard error and degrees of freedom of a sum or difference of two estimates, each with its own."""
    (a, first), (b, second) = (one[0] ** 2, one[1]), (other[0] ** 2, other[1])
    if a + b == 0:
        return 0.0, float(min(first, second))
    return math.sqrt(a + b), (a + b) ** 2 / (a**2 / first + b**2 / second)


def crossing(positions: Sequence[float], values: Sequence[float], target: float, lower: bool) -> Amount | None:
    """The amount until the best value so far was `target`; None for a curve without values.

    `positions` (on an axis, rising) and `values` are a run's validations. Between two of them the amount is read off a
    monotone curve through the best values so far (Fritsch and Carlson 1980) over the logarithm of the position, on
    which they are closest to straight: rounded up to the next validation, the smaller side of a ratio would lose most.
    A curve that never reaches the target is censored at its end; one whose first value is there took that or less.
    """
    sign = 1 if lower else -1
    points: list[tuple[float, float]] = []
    reached = None
    for place, value in zip(positions, values, strict=True):
        if math.isnan(value) or (points and sign * value >= points[-1][0]):
            continue
        points.append((sign * value, place))
        if reached is None and sign * value <= sign * target:
            reached = len(points) - 1
        elif reached is not None:
            break  # one point beyond it shapes the curve
    if reached is None:
        return Amount(positions[-1], censored=True) if len(positions) else None
    if reached == 0:
        return Amount(points[0][1], at_once=True)
    around = [(value, place) for value, place in points[max(0, reached - 2) :] if math.isfinite(value)]
    if points[reached][0] == sign * target or not all(math.isfinite(points[i][0]) for i in (reached - 1, reached)):
        return Amount(points[reached][1])
    return Amount(_between(around, sign * target))


def _between(points: Sequence[tuple[float, float]], target: float) -> float:
    """The place at `target`, which lies within the values of the points; these fall, and their places rise."""
    from scipy.interpolate import PchipInterpolator

    logs = all(place > 0 for _, place in points)
    x, y = [-value for value, _ in points], [math.log(place) if logs else place for _, place in points]
    place = float(PchipInterpolator(x, y)(-target))
    return math.exp(place) if logs else place
