"""What a run took to its target, of curves whose crossing is known."""

import math
from collections.abc import Callable

import pytest

from scalebook.training.claims.crossing import crossing
from scalebook.training.claims.intervals import Amount

CURVES: dict[str, Callable[[float], float]] = {
    "power": lambda x: x**-0.5,
    "shallow power": lambda x: x**-0.3,
    "exponential to a floor": lambda x: 0.5 + 1.8 * 3.6**-x,
    "exponential": lambda x: 2.3 * 2.3**-x,
    "logarithm": lambda x: 1 - 0.4 * math.log(x),
}
"""Each is 1 at 1."""


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize(("base", "every"), [(110, 8), (110, 32), (160, 64), (500, 64), (2000, 8)])
def test_between_validations_what_it_took_is_within_a_percent(name: str, base: float, every: int) -> None:
    """Rounded up to a validation these are up to 16 % too long."""
    at = [float(every * i) for i in range(1, 400)]
    found = crossing(at, [CURVES[name](place / base) for place in at], 1.0, True)
    assert found is not None
    assert found.value == pytest.approx(base, rel=0.01)
    rising = crossing(at, [-CURVES[name](place / base) for place in at], -1.0, False)
    assert rising == found


def test_a_worse_validation_or_one_that_failed_is_passed_over() -> None:
    """The best so far: 4, 3, 2, 1 at equal steps of the logarithm; the target lies in the middle of the last."""
    found = crossing([1, 2, 3, 4, 6, 8], [4, 3, math.nan, 2, 9, 1], 1.5, True)
    assert found is not None
    assert found.value == pytest.approx(4 * 2**0.5)


def test_at_a_validation_at_once_and_never() -> None:
    assert crossing([10, 20, 30], [3, 2, 1], 2, True) == Amount(20)
    assert crossing([10, 20, 30], [1, 2, 1], 2, True) == Amount(10, at_once=True)
    assert crossing([10, 20, 30], [3, 2, 2], 1, True) == Amount(30, censored=True)
    assert crossing([10, 20], [math.inf, 1], 2, True) == Amount(20)
    assert crossing([], [], 1, True) is None


def test_an_axis_that_begins_at_zero_has_no_logarithm() -> None:
    """Bytes of one process: what is between 0 and 0 is 0."""
    assert crossing([0, 0, 0], [3, 2, 1], 1.5, True) == Amount(0)
