"""Which point stands for a part of a search, of figures that are given."""

import pytest

from scalebook.training.experiments.search.space import Dimension
from scalebook.training.notebook.claims.evidence import SeedOutcome, best_of
from scalebook.training.notebook.claims.intervals import Amount
from scalebook.training.search.study.trials import TrialRecord

RATES = (0.01, 0.03, 0.1, 0.3)
SPACE = (Dimension("learning_rate", "grid", choices=RATES), Dimension("rule", "values", choices=("async",)))
Seeds = tuple[tuple[float | None, float], ...]
"""Of each seed that chooses, what it took to the target (None: it missed it, at 900) and the best value it had."""


def chosen(*points: Seeds, lower: bool = True) -> float:
    """The rate that stands for a part of the search, of which RATES in order are the points."""
    trials = [
        TrialRecord(number, "finished", {"learning_rate": rate, "rule": "async"})
        for number, (rate, _) in enumerate(zip(RATES, points, strict=False))
    ]
    shown = {
        number: [SeedOutcome(Amount(900 if took is None else took, took is None), best) for took, best in seeds]
        for number, seeds in enumerate(points)
        if seeds
    }
    found = best_of(trials, shown, lower, SPACE).point["learning_rate"]
    assert isinstance(found, float)
    return found


def at(*took: float | None, best: float = 0.2) -> Seeds:
    return tuple((each, best) for each in took)


@pytest.mark.parametrize(
    ("points", "rate"),
    [
        ((at(50, 70), at(60, 50), at(80, 80)), 0.03),
        ((at(10, None), at(60, 50), at(None, None)), 0.03),  # whoever misses a seed has not been fast
        ((at(40, None), at(None, 30), at(None, None)), 0.03),
        ((at(None, None, best=0.5), at(None, None, best=0.4), at(None, None, best=0.3)), 0.1),
        ((at(50, 60, best=0.24), at(60, 50, best=0.21), at(70, 70)), 0.03),  # amounts are as coarse as validations
        ((at(50, 50), at(50, 50), at(50, 50)), 0.03),  # the middle of three
        ((at(None, None), at(None, None), at(None, None)), 0.03),
        ((at(90, 90), at(50, 50), at(50, 50), at(50, 50)), 0.03),  # of four: as near as 0.1, and tried first
        (((), at(90, 90), at(50, 50)), 0.1),  # the first has not finished with both seeds
    ],
)
def test_more_seeds_then_the_better_mean_then_the_nearest_to_the_target_then_the_middle(
    points: tuple[Seeds, ...], rate: float
) -> None:
    assert chosen(*points) == rate


def test_of_a_figure_that_should_be_large_the_largest_mean() -> None:
    assert chosen(at(5, 6), at(7, 7), at(6, 7), lower=False) == 0.03


def test_of_one_point_nothing_is_asked() -> None:
    """Where no side has several points no seeds choose."""
    assert best_of([TrialRecord(3, "finished", {"learning_rate": 0.1})], {3: []}, True, SPACE[:1]).number == 3
