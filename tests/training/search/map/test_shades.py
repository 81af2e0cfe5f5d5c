from itertools import pairwise

import pytest

from scalebook.training.search.map.shades import shades


def test_the_best_is_1_and_the_worst_is_0() -> None:
    found = shades([1.0, 1.5, 2.0], lower=True)
    assert found is not None
    assert found.of([1.0, 1.5, 2.0]) == pytest.approx([1.0, 0.5, 0.0])


def test_higher_may_be_better() -> None:
    found = shades([0.5, 0.75, 1.0], lower=False)
    assert found is not None
    assert found.of([0.5, 0.75, 1.0]) == pytest.approx([0.0, 0.5, 1.0])
    assert [label for _, label in found.ticks()] == ["0.5", "0.6", "0.7", "0.8", "0.9", "1"]


def test_one_that_nearly_diverged_does_not_hide_the_rest() -> None:
    values = [1.0 + i / 100 for i in range(99)] + [400.0]
    found = shades(values, lower=True)
    assert found is not None
    assert found.clipped
    assert found.worst < 2
    assert found.of([400.0]) == [0.0]
    assert found.ticks()[0][1].endswith("or worse")


def test_values_over_decades_are_spread_by_their_logarithm() -> None:
    found = shades([0.01, 0.1, 1.0], lower=True)
    assert found is not None
    assert found.log
    assert found.of([0.1]) == pytest.approx([0.5])


def test_marks_between_the_ends_are_round_and_apart() -> None:
    found = shades([0.131, 0.325, 0.723], lower=True)
    assert found is not None
    assert [label for _, label in found.ticks()] == ["0.723", "0.6", "0.5", "0.4", "0.3", "0.131"]
    places = [place for place, _ in found.ticks()]
    assert min(high - low for low, high in pairwise(places)) >= 0.12
    wide = shades([0.0117, 0.4, 1.13], lower=True)
    assert wide is not None
    assert wide.log
    assert [label for _, label in wide.ticks()] == ["1.13", "0.5", "0.2", "0.1", "0.05", "0.0117"]


def test_equal_values_are_all_the_best() -> None:
    found = shades([2.0, 2.0], lower=True)
    assert found is not None
    assert list(found.of([2.0, 2.0])) == [1.0, 1.0]
    assert found.ticks() == [(1.0, "2")]


def test_a_missed_target_has_no_shade() -> None:
    assert shades([float("inf"), float("nan")], lower=True) is None
    found = shades([float("inf"), 3.0, 5.0], lower=True)
    assert found is not None
    assert (found.best, found.worst) == (3.0, 5.0)
