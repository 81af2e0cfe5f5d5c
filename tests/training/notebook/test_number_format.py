import pytest

from scalebook.training.notebook import number_format
from scalebook.training.tracking.estimate import Estimate, Reached


@pytest.mark.parametrize(
    ("mean", "half", "shown"),
    [(0.98333, None, "0.9833"), (0.98333, 0.01234, "0.983 ± 0.012"), (1.90512, 0.3, "1.91 ± 0.30"),
     (12.0, 45.0, "12 ± 45"),
     (0.0, None, "0"), (1.2e-7, None, "1.200e-07"), (1.0, 0.0, "1.000")],
)  # fmt: skip
def test_metrics_have_as_many_digits_as_they_are_worth(mean: float, half: float | None, shown: str) -> None:
    assert number_format.metric(Estimate(mean, half, 3)) == shown


@pytest.mark.parametrize(
    ("mean", "half", "shown"),
    [(1437.4, None, "1,437"), (230.0, 31.2, "230 ± 31"), (12.345, None, "12.3"), (1.2345, 0.5, "1.23 ± 0.50"),
     (90.0, None, "90"), (0.857, None, "0.857")],
)  # fmt: skip
def test_amounts(mean: float, half: float | None, shown: str) -> None:
    assert number_format.amount(Estimate(mean, half, 3)) == shown


def test_a_missed_target_says_how_many_reached_it() -> None:
    assert number_format.to_target(Reached(None, 2, 3)) == "2 of 3"
    assert number_format.to_target(Reached(None, 2, 3), first=False) == "-"
    assert number_format.to_target(Reached(Estimate(230.0, None, 1), 1, 1)) == "230"
    assert number_format.to_target(None) == "-"
