"""A mean over seeds, with its confidence interval."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

T_975: Final = (
    *(12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139),
    *(2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963),
)
"""97.5 % quantiles of Student's t for 1 to 20 degrees of freedom (Student 1908)."""


@dataclass(frozen=True)
class Estimate:
    """The mean of `n` values. `half` is half the width of its 95 % interval (Student's t); None for a single value."""

    mean: float
    half: float | None
    n: int


@dataclass(frozen=True)
class Reached:
    """What it took to reach a target. `estimate` is over all `runs`; None (censored) if any run missed the target."""

    estimate: Estimate | None
    reached: int
    runs: int


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Mean and interval of the finite values; None if there are none."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return None
    if len(finite) == 1:
        return Estimate(finite[0], None, 1)
    half = t_975(len(finite) - 1) * statistics.stdev(finite) / math.sqrt(len(finite))
    return Estimate(statistics.fmean(finite), half, len(finite))


def reached(values: Iterable[float | None]) -> Reached:
    """How many runs reached the target, and an estimate of what it took. A value of None is a run that never did."""
    amounts = list(values)
    count = sum(amount is not None for amount in amounts)
    return Reached(estimate(amounts) if amounts and count == len(amounts) else None, count, len(amounts))


def t_975(degrees: int) -> float:
    """The 97.5 % quantile of Student's t; beyond the table, by expansion about the normal quantile (error below
    1e-5)."""
    if degrees <= len(T_975):
        return T_975[degrees - 1]
    z = statistics.NormalDist().inv_cdf(0.975)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def student_quantile(share: float, degrees: float) -> float:
    """A quantile of Student's t, also for degrees of freedom that are not a whole number."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, share))
