"""Times counted by classes: what is read back."""

import random
import statistics

import pytest

from scalebook.training.engine.memory.region import CLASSES, SUMS, DurationHistogram


def spread() -> DurationHistogram:
    return DurationHistogram(memoryview(bytearray(8 * CLASSES)).cast("q"), memoryview(bytearray(8 * SUMS)).cast("d"))


def test_what_was_added_is_read_back() -> None:
    made, draw = spread(), random.Random(1)
    assert made.took() is None
    times = [draw.lognormvariate(-5, 0.7) for _ in range(4000)]
    for time in times:
        made.add(time)
    found = made.took()
    assert found is not None
    assert found.count == 4000
    assert found.mean == pytest.approx(statistics.fmean(times), rel=1e-9)
    assert found.cv == pytest.approx(statistics.pstdev(times) / statistics.fmean(times), rel=1e-6)
    exact = [statistics.fmean(sorted(times)[40 * part : 40 * part + 40]) for part in range(100)]
    assert found.values == pytest.approx(exact, rel=0.03)  # classes are 4 % wide


def test_one_time_for_several() -> None:
    made = spread()
    made.add(0.25, times=3)
    made.add(1.0)
    found = made.took()
    assert found is not None
    assert (found.count, found.mean) == (4, 0.4375)


@pytest.mark.parametrize("seconds", [0.0, 1e-12, 1e6])
def test_what_is_shorter_or_longer_than_all_classes_counts_too(seconds: float) -> None:
    made = spread()
    made.add(seconds)
    found = made.took()
    assert found is not None
    assert found.count == 1
