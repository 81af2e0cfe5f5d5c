"""A hundred values that stand for all times that were measured."""

import math
import random
import statistics

import pytest

from scalebook.training.engine.rules.duration_summary import DurationSummary, together, took


def of(times: list[float]) -> DurationSummary:
    made = took([(time, 1) for time in times], math.fsum(times), math.fsum(time * time for time in times))
    assert made is not None
    return made


def test_mean_spread_and_tail_are_those_of_what_was_measured() -> None:
    draw = random.Random(3)
    times = [draw.gammavariate(4, 0.25) for _ in range(5000)]
    found = of(times)
    assert (found.count, len(found.values)) == (5000, 100)
    assert found.values == sorted(found.values)
    assert found.mean == pytest.approx(statistics.fmean(times))
    assert statistics.fmean(found.values) == pytest.approx(found.mean)
    assert found.cv == pytest.approx(statistics.pstdev(times) / statistics.fmean(times))
    assert statistics.pstdev(found.values) / found.mean == pytest.approx(found.cv, rel=0.01)
    slowest = sorted(times)[-50:]
    assert found.values[-1] == pytest.approx(statistics.fmean(slowest))


def test_a_few_fill_all_the_values() -> None:
    assert of([2.0] * 3) == DurationSummary(3, 2.0, 0.0, [2.0] * 100)
    assert of([1.0] * 3 + [5.0]).values == pytest.approx([1.0] * 75 + [5.0] * 25)
    assert took([], 0.0, 0.0) is None
    assert together([]) is None


def test_several_count_as_often_as_they_were_measured() -> None:
    both = together([of([1.0] * 300), of([3.0] * 100)])
    assert both is not None
    assert (both.count, both.mean) == (400, 1.5)
    assert both.cv == pytest.approx(statistics.pstdev([1, 1, 1, 3]) / 1.5)
    assert both.values == pytest.approx([1.0] * 75 + [3.0] * 25)
