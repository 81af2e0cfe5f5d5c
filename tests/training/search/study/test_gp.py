"""What the Gaussian process is shown of a study, and how well it does."""

import math
from pathlib import Path

import pytest

from scalebook.training.experiments.search.space import Dimension
from scalebook.training.experiments.search.types import Objective
from scalebook.training.search.study import gp
from scalebook.training.search.study.study import Study
from tests.training.search.studies import ACCURACY, RATE, SECONDS, journal, search

SPACE = (Dimension("shift", "uniform", -3, 3), RATE)


def bowl(point: dict[str, float]) -> float:
    """Lowest, 0, at shift 1 and rate 0.05."""
    return (point["shift"] - 1) ** 2 + math.log10(point["learning_rate"] / 0.05) ** 2


def best_of(tmp_path: Path, sampler: str) -> float:
    study = Study.open(journal(tmp_path), sampler, search(*SPACE, sampler=sampler))
    values = []
    for _ in range(20):
        asked = study.ask()
        values.append(bowl(asked.point))
        study.finish(asked.number, values[-1:])
    return min(values)


@pytest.mark.thorough
def test_of_twenty_trials_on_a_smooth_objective_its_best_is_ten_times_better_than_tpes(tmp_path: Path) -> None:
    assert best_of(tmp_path, "gp") < 1e-3 < 0.1 * best_of(tmp_path, "tpe")


@pytest.mark.parametrize(("objective", "sign"), [(SECONDS, 1), (ACCURACY, -1)])
def test_each_trial_that_says_something_has_a_finite_value(tmp_path: Path, objective: Objective, sign: int) -> None:
    """With `sign` 1 less is better. The median of 1, 2 and 5 is 2, the worst 5."""
    study = Study.open(journal(tmp_path), "one", search(RATE, objectives=(objective,)))
    for value in (1.0, 2.0, 5.0, math.inf):
        study.finish(study.ask().number, [sign * value])
    for last in (4.0, 0.5):
        study.report(number := study.ask().number, 10, sign * 9.0)
        study.report(number, 20, sign * last)
        study.prune(number, "behind")
    study.report(number := study.ask().number, 10, sign * 0.1)
    study.infeasible(number, "diverged", "became nan")
    study.fail(study.ask().number, "killed", "signal 9")
    running = study.ask()
    study.give({"learning_rate": 0.25})

    trials, space = study._study.get_trials(), study._drawn.space
    ended = gp._ended(trials, study._study.directions, space)
    assert [one.value for one in ended] == [sign * value for value in (1, 2, 5, 5, 4, 2, 5)]
    assert [one.params for one in ended] == [one.params for one in trials[:7]]
    assert [one.params["learning_rate"] for one in gp._under_way(trials, space)] == [
        running.point["learning_rate"],
        0.25,
    ]


def test_where_nothing_has_finished_there_is_nothing_to_learn(tmp_path: Path) -> None:
    study = Study.open(journal(tmp_path), "one", search(RATE, objectives=(SECONDS,), sampler="gp"))
    for _ in range(12):
        study.finish(study.ask().number, [math.inf])
    assert gp._ended(study._study.get_trials(), study._study.directions, study._drawn.space) == []
    study.ask()


def test_points_in_flight_are_apart(tmp_path: Path) -> None:
    """Of a process that is not shown what runs, the third is the first once more."""
    study = Study.open(journal(tmp_path), "one", search(*SPACE, sampler="gp"))
    for _ in range(12):
        asked = study.ask()
        study.finish(asked.number, [bowl(asked.point)])
    flying = [study.ask().point for _ in range(4)]
    for place, one in enumerate(flying):
        for other in flying[:place]:
            off_rate = math.log10(one["learning_rate"] / other["learning_rate"])
            assert math.hypot((one["shift"] - other["shift"]) / 6, off_rate / 3) > 0.01


def test_it_writes_nothing_but_the_point_into_the_study(tmp_path: Path) -> None:
    study = Study.open(journal(tmp_path), "one", search(RATE, sampler="gp"))
    for _ in range(11):
        asked = study.ask()
        study.finish(asked.number, [asked.point["learning_rate"]])
    assert all(not one.system_attrs.keys() - {"fixed_params"} for one in study._study.get_trials())
