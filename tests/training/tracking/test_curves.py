import math

import pytest

from scalebook.training.tracking.curves import at_x, mean_curve, smooth, thin
from scalebook.training.tracking.run_reader import MetricCurve


def curve(x: list[float], y: list[float]) -> MetricCurve:
    return MetricCurve("run", "val/loss", x, [32 * at for at in x], [at / 10 for at in x], y)


def test_the_mean_is_taken_where_all_curves_are_known() -> None:
    found = mean_curve([curve([0, 10, 20], [4, 2, 1]), curve([5, 15], [5, 3])], "updates")
    assert found is not None
    assert found.x == [5, 10, 15]
    assert found.mean == [4.0, 3.0, 2.25]
    assert (found.low[1], found.high[1]) == (2.0, 4.0), "the range of two runs"


@pytest.mark.parametrize(("seeds", "half"), [(2, None), (4, None), (5, 2.776445), (6, 2.570582)])
def test_a_band_is_the_interval_of_five_runs_and_the_range_of_fewer(seeds: int, half: float | None) -> None:
    """Runs at 10 + 0, 1, ...: of five the standard deviation is root 2.5, and half the interval t root(2.5 / 5)."""
    values = [10.0 + seed for seed in range(seeds)]
    found = mean_curve([curve([0, 10], [value, value]) for value in values], "updates")
    assert found is not None
    mean, spread = sum(values) / seeds, math.sqrt(seeds * (seeds + 1) / 12)
    low, high = (values[0], values[-1]) if half is None else (mean - half * spread / math.sqrt(seeds),) * 2
    assert found.low[0] == pytest.approx(low)
    assert found.high[0] == pytest.approx(high if half is None else 2 * mean - low)


def test_a_band_of_what_is_never_negative_is_not_negative() -> None:
    """An interval of 0.9 +- 1.6 of a loss ends at the lowest seed, which a logarithmic axis can show, too."""
    found = mean_curve([curve([0, 10], [value, value]) for value in (0.1, 0.1, 0.1, 0.2, 4.0)], "updates")
    assert found is not None
    assert found.low == [0.1, 0.1]
    assert found.high[0] == pytest.approx(0.9 + 2.776445 * math.sqrt(12.03 / 4 / 5), rel=1e-3)
    negative = mean_curve([curve([0, 10], [value, value]) for value in (-0.1, 0.1, 0.1, 0.2, 4.0)], "updates")
    assert negative is not None
    assert negative.low[0] < -1


def test_other_axes_and_curves_without_a_common_stretch() -> None:
    found = mean_curve([curve([10, 20], [2, 1]), curve([10, 20], [4, 1])], "seconds")
    assert found is not None
    assert found.x == [1, 2]
    assert mean_curve([curve([0, 1], [1, 1]), curve([5, 6], [1, 1])], "updates") is None
    assert mean_curve([curve([0, 1], [1, 1]), curve([], [])], "updates") is None


def test_values_between_points_lie_on_the_line() -> None:
    assert at_x([0, 10], [0, 5], 4) == 2.0
    assert at_x([0, 10], [0, 5], 10) == 5


def test_thinning_keeps_the_ends_and_every_spike() -> None:
    x = [float(i) for i in range(10_000)]
    y = [math.sin(i / 500) for i in range(10_000)]
    y[4321] = 50.0
    thin_x, thin_y = thin(x, y, points=600)
    assert len(thin_x) == len(thin_y) <= 602
    assert (thin_x[0], thin_x[-1]) == (0.0, 9999.0)
    assert max(thin_y) == 50.0
    assert thin_x == sorted(thin_x)


def test_a_short_curve_stays_as_it_is() -> None:
    assert thin([1.0, 2.0], [3.0, 4.0], 600) == ([1.0, 2.0], [3.0, 4.0])


def test_a_moving_average_keeps_its_weight_of_the_past_and_is_not_pulled_to_zero() -> None:
    assert smooth([4.0, 4.0, 4.0], 0.9) == pytest.approx([4.0, 4.0, 4.0])
    assert smooth([0.0, 1.0], 0.5) == pytest.approx([0.0, 2 / 3])  # (0 * 0.25 + 1 * 0.5) / 0.75
    assert smooth([1.0, 3.0, 2.0], 0.0) == [1.0, 3.0, 2.0]
    gap = smooth([1.0, math.nan, math.inf, 3.0], 0.5)
    assert math.isnan(gap[1])
    assert gap[2] == math.inf
    assert gap[3] == pytest.approx((1 * 0.25 + 3 * 0.5) / 0.75)
    assert smooth([], 0.5) == []
