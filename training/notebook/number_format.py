"""Numbers as people read them: as many digits as they are worth, thousands set off, units where they belong."""

import math
from typing import Final

from scalebook.training.tracking import Estimate, Reached

NOTHING: Final = "-"
DIGITS: Final = 4
"""Significant digits of a metric that has no interval."""


def metric(value: Estimate | None) -> str:
    """`0.9833`, or `0.983 ± 0.012`: to the second digit of the interval."""
    if value is None:
        return NOTHING
    if value.half is None or value.half == 0:
        return _significant(value.mean, DIGITS)
    places = min(6, max(0, 1 - math.floor(math.log10(value.half))))
    return f"{value.mean:,.{places}f} ± {value.half:,.{places}f}"


def amount(value: Estimate | None, digits: int = 3) -> str:
    """A count, rate or duration: whole numbers from 100 on, three digits below."""
    if value is None:
        return NOTHING
    mean = _plain(value.mean, digits)
    if value.half is None or value.half == 0:
        return mean
    places = len(mean.partition(".")[2])
    return f"{mean} ± {value.half:,.{places}f}"


def mean(value: Estimate | None) -> str:
    """The mean alone, for columns that decide nothing."""
    return NOTHING if value is None else _plain(value.mean, 3)


def to_target(value: Reached | None, first: bool = True) -> str:
    """The amount; where a run missed the target, how many reached it (said once a row, in its `first` column)."""
    if value is None or value.runs == 0:
        return NOTHING
    if value.estimate is None:
        return f"{value.reached} of {value.runs}" if first else NOTHING
    return amount(value.estimate)


def factor(value: float) -> str:
    """A ratio: `0.57`; whole numbers from 100 on."""
    return f"{value:.2f}" if value < 100 else count(value)


def count(value: float) -> str:
    """`12,345`."""
    return f"{value:,.0f}"


def _plain(value: float, digits: int) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) or value == int(value) else _significant(value, digits)


def _significant(value: float, digits: int) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = math.floor(math.log10(abs(value)))
    if -4 <= exponent < digits:
        return f"{value:.{digits - 1 - exponent}f}"
    return f"{value:,.0f}" if 0 < exponent < 9 else f"{value:.{digits - 1}e}"
