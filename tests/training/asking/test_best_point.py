"""The target that follows from a run."""

import math
from collections.abc import Sequence

import pytest

from scalebook.training.asking.best_point import may_undo, target_of
from scalebook.training.tracking.run_reader import MetricCurve


def curve(values: Sequence[float]) -> MetricCurve:
    steps = [*range(1, len(values) + 1)]
    samples, seconds = [100.0 * step for step in steps], [float(step) for step in steps]
    return MetricCurve("run", "val/loss", [float(step) for step in steps], samples, seconds, [*values])


@pytest.mark.parametrize(
    ("values", "lower", "target"),
    [
        ([1.0, 0.81234, 0.6, 0.5, 0.4], True, 0.813),  # from a quarter on, rounded to what is easier
        ([0.1, 0.28766, 0.4, 0.5, 0.6], False, 0.287),
        ([1.0, 0.9, 0.5, 0.52, 0.1, 0.5, 0.6, 0.51, 0.4, 0.5], True, 0.6),  # a plateau: what nearly all reach
        ([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1], True, 0.8),  # soon, if it falls all the time
        ([1.0, 0.5, 0.9], True, 0.9),  # few validations: all of them reach it
        ([1.0, 0.9], True, 0.9),  # two validations: the second one, never the first
        ([1.0, math.nan, 0.7, math.nan, 0.6], True, 0.7),
        ([-1.0, -2.0, -3.456, -4.0, -5.0], True, -2.0),
        ([0.0, 0.0, 0.0], True, 0.0),
        ([1.0], True, None),
        ([math.nan, math.nan, math.inf], True, None),
    ],
)  # fmt: skip
def test_the_target_is_what_is_reached_after_part_of_the_samples(
    values: list[float], lower: bool, target: float | None
) -> None:
    assert target_of(curve(values), lower) == (None if target is None else pytest.approx(target))


def test_of_a_longer_run_only_the_part_that_others_make_counts() -> None:
    assert target_of(curve([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]), True, 0.5) == 0.9


def test_another_point_may_undo_a_verdict_if_its_one_run_was_unlucky() -> None:
    assert may_undo(one_run=0.0, expected=0.1, spread=0.05, margin=0.2)
    assert not may_undo(one_run=0.0, expected=0.1, spread=0.03, margin=0.2)
    assert not may_undo(one_run=0.5, expected=0.1, spread=0.05, margin=0.2)
