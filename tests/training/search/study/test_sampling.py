"""Which points are asked."""

import math
import statistics
from collections import Counter
from pathlib import Path

import pytest

from scalebook.training.experiments.search.keys import SAMPLERS
from scalebook.training.experiments.search.space import Dimension
from scalebook.training.search.study.sampling import distribution
from scalebook.training.search.study.study import Study
from tests.training.search.studies import ACCURACY, BATCH, LOSS, RATE, SECONDS, STRATEGY, WORKERS, journal, run, search

ALL = [*SAMPLERS]
DRAWING = [one for one in ALL if one != "grid"]


def points(tmp_path: Path, name: str, sampler: str, trials: int, seed: int = 1) -> list[dict[str, object]]:
    study = Study.open(journal(tmp_path), name, search(sampler=sampler, sampler_seed=seed))
    return [one.point for one in run(study, trials)]


@pytest.mark.parametrize(
    "sampler", [*(one for one in DRAWING if one != "gp"), pytest.param("gp", marks=pytest.mark.thorough)]
)
def test_points_lie_in_the_space_and_a_search_can_be_repeated(tmp_path: Path, sampler: str) -> None:
    first = points(tmp_path, "one", sampler, 16)
    for point in first:
        assert all(one.contains(point[one.name]) for one in (BATCH, RATE, STRATEGY))
    assert len({str(point) for point in first}) == 16
    assert points(tmp_path, "two", sampler, 16) == first
    assert points(tmp_path, "three", sampler, 3, seed=2) != first[:3]


@pytest.mark.parametrize("sampler", DRAWING)
def test_a_restarted_driver_draws_what_it_would_have_drawn(tmp_path: Path, sampler: str) -> None:
    spec = search(sampler=sampler)
    expected = run(Study.open(journal(tmp_path), "one", spec), 14)
    again = []
    for _ in range(7):
        again += run(Study.open(journal(tmp_path), "two", spec), 2)
    assert again == expected


def test_tpe_finds_the_region_and_random_does_not_look_for_it(tmp_path: Path) -> None:
    def off(sampler: str) -> float:
        found = points(tmp_path, sampler, sampler, 60)[30:]
        return statistics.median(abs(float(str(one["learning_rate"])) - 0.1) for one in found)

    assert off("tpe") < 0.05 < off("random")


def test_numbers_are_ordered_for_the_sampler_and_categories_are_not() -> None:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    odd = Dimension("model.hidden", "int", 1, 10, step=4)
    assert distribution(BATCH) == IntDistribution(4, 10)
    assert distribution(WORKERS) == IntDistribution(0, 2)
    assert distribution(odd) == IntDistribution(1, 9, step=4)
    assert distribution(RATE) == FloatDistribution(0.001, 1.0, log=True)
    assert distribution(Dimension("a.b", "uniform", -1, 1)) == FloatDistribution(-1.0, 1.0)
    assert distribution(Dimension("a.b", "values", choices=(None, True, "x"))) == CategoricalDistribution(
        ("null", "true", "x")
    )


GRID = (WORKERS, Dimension("momentum", "uniform", 0, 0.9, points=4), STRATEGY)


def test_the_grid_is_visited_once_over_interruptions_and_with_several_in_flight(tmp_path: Path) -> None:
    """Given points count, wherever they come; each third driver dies with trials on their way."""
    given = ({"workers": 2, "momentum": 0.3, "strategy": "ddp"},)
    spec = search(*GRID, sampler="grid", points=given)
    seen: list[str] = []
    flying: list[int] = []
    study = Study.open(journal(tmp_path), "grid", spec)
    while not study.exhausted():
        asked = study.ask()
        seen.append(str(asked.point))
        flying.append(asked.number)
        if len(flying) == 4:
            done = flying.pop(1)
            if done % 5:
                study.finish(done, [0.0])
            else:
                study.fail(done, "killed", "signal 9")
        if len(seen) % 3 == 0:
            study = Study.open(journal(tmp_path), "grid", spec)
            assert [one.number for one in study.running()] == sorted(flying)
    assert max(Counter(seen).values()) == 1
    assert len(seen) == 3 * 4 * 3
    assert seen[0] == str({"workers": 2, "momentum": 0.3, "strategy": "ddp"})
    with pytest.raises(ValueError, match="every point of the grid"):
        study.ask()


def test_the_grid_is_not_visited_row_by_row(tmp_path: Path) -> None:
    """Half of it already shows the whole space."""
    study = Study.open(journal(tmp_path), "grid", search(*GRID, sampler="grid"))
    asked = run(study, 12)
    assert {one.point["workers"] for one in asked[:9]} == {1, 2, 4}
    assert {round(one.point["momentum"], 3) for one in asked} == {0.0, 0.3, 0.6, 0.9}


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_finite_space_is_used_up_without_repeats(tmp_path: Path, sampler: str) -> None:
    study = Study.open(journal(tmp_path), "finite", search(BATCH, WORKERS, sampler=sampler))
    seen = set()
    while not study.exhausted():
        seen.add(str(run(study, 1)[0].point))
    assert len(seen) == len(study.records()) == 7 * 3


def test_ranges_of_numbers_are_never_used_up(tmp_path: Path) -> None:
    study = Study.open(journal(tmp_path), "endless", search(RATE, sampler="random"))
    run(study, 3)
    assert not study.exhausted()


def infeasible_share(tmp_path: Path, told: str, sampler: str, trials: int) -> float:
    """Of points above a rate of 0.03, the half of the space where all diverge, among those after the tenth."""
    study = Study.open(journal(tmp_path), told, search(RATE, BATCH, sampler=sampler))
    above = 0
    for number in range(trials):
        asked = study.ask()
        rate = asked.point["learning_rate"]
        if rate <= 0.03:
            study.finish(asked.number, [abs(rate - 0.01)])
            continue
        above += number >= 10
        if told == "infeasible":
            study.report(asked.number, 100, 0.001)  # its curve looked best before it diverged
            study.infeasible(asked.number, "diverged", "val/loss became nan")
        else:
            study.fail(asked.number, "killed", "signal 9")
    return above / (trials - 10)


@pytest.mark.parametrize(("sampler", "trials"), [("tpe", 40), pytest.param("gp", 24, marks=pytest.mark.thorough)])
def test_the_sampler_keeps_away_from_what_is_infeasible_and_learns_nothing_of_failures(
    tmp_path: Path, sampler: str, trials: int
) -> None:
    shares = [infeasible_share(tmp_path, told, sampler, trials) for told in ("infeasible", "failed")]
    assert shares[0] < 0.3 < shares[1]


def test_missed_targets_do_not_lead_the_sampler_astray(tmp_path: Path) -> None:
    """The target is reached below a rate of 0.1, the sooner the larger the rate; elsewhere the seconds are infinite."""
    study = Study.open(journal(tmp_path), "target", search(RATE, objectives=(LOSS, SECONDS), target=0.5))
    reached = []
    for _ in range(60):
        asked = study.ask()
        rate = asked.point["learning_rate"]
        reached.append(rate < 0.1)
        study.finish(asked.number, [0.4 + rate if rate < 0.1 else 1.0 + rate, 1 / rate if rate < 0.1 else math.inf])
    assert sum(reached[30:]) >= 24 > sum(reached[:10])


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid", "qmc", pytest.param("gp", marks=pytest.mark.thorough)])
def test_two_objectives(tmp_path: Path, sampler: str) -> None:
    spec = search(BATCH, STRATEGY, objectives=(LOSS, ACCURACY), sampler=sampler)
    study = Study.open(journal(tmp_path), sampler, spec)
    asked = run(study, 12)
    study.infeasible(study.ask().number, "out of memory", "no room")
    asked += run(study, 2)
    assert len({str(one.point) for one in asked}) == 14
