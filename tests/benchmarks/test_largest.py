import math

import pytest

from benchmarks.largest import largest, most


@pytest.mark.parametrize("border", [0.011, 0.37, 1.0, 2.0, 7.9])
def test_the_border_is_found_to_nine_percent_from_below(border: float) -> None:
    found = largest(lambda value: value <= border, start=16.0, halvings=12)
    assert found is not None
    assert border / 2 ** (1 / 8) < found <= border


def test_what_fails_far_below_does_not_mislead() -> None:
    found = largest(lambda value: 0.2 <= value <= 0.7, start=16.0, halvings=12)
    assert found is not None
    assert 0.7 / 2 ** (1 / 8) < found <= 0.7


def test_none_when_it_works_nowhere_in_the_range() -> None:
    tried: list[float] = []

    def never(value: float) -> bool:
        tried.append(value)
        return False

    assert largest(never, start=8.0, halvings=3) is None
    assert tried == [8.0, 4.0, 2.0, 1.0]


def test_a_start_that_works_is_refused() -> None:
    with pytest.raises(ValueError, match="Start the search higher"):
        largest(lambda value: value < math.inf, start=1.0, halvings=3)


@pytest.mark.parametrize(
    ("works", "verdict", "tried"),
    [([True, True, False], True, 2), ([False, False, True], False, 2), ([True, False, True], True, 3)],
)
def test_most_tries_no_more_seeds_than_decide(works: list[bool], verdict: bool, tried: int) -> None:
    asked: list[int] = []

    def one(seed: int) -> bool:
        asked.append(seed)
        return works[seed]

    assert most(3, one) is verdict
    assert asked == list(range(tried))
