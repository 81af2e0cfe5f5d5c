import math

import pytest

from scalebook.training.tracking.estimate import Estimate, Reached, estimate, reached, t_975


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.706205), (2, 4.302653), (7, 2.364624), (20, 2.085963), (21, 2.079614), (30, 2.042272), (1000, 1.962339)],
)
def test_quantiles_of_student(degrees: int, quantile: float) -> None:
    assert t_975(degrees) == pytest.approx(quantile, abs=1e-5)


def test_the_interval_is_students() -> None:
    found = estimate([1.0, 2.0, 3.0, None, math.nan])
    assert found is not None
    assert (found.mean, found.n) == (2.0, 3)
    assert found.half == pytest.approx(4.302653 * 1.0 / math.sqrt(3), rel=1e-6)  # quantile * deviation / sqrt(n)


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    assert estimate([4.0]) == Estimate(4.0, None, 1)
    assert estimate([None, math.inf]) is None


def test_a_target_that_one_run_missed_is_censored() -> None:
    assert reached([10.0, None, 30.0]) == Reached(None, 2, 3)
    whole = reached([10.0, 30.0])
    assert whole.estimate is not None
    assert (whole.estimate.mean, whole.reached, whole.runs) == (20.0, 2, 2)
    assert reached([]) == Reached(None, 0, 0)
