"""The study that a driver holds: each call, after restarts too."""

import itertools
import math
from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.search.study.study import AskedTrial, Study
from scalebook.training.search.study.study_reader import read_study
from scalebook.training.search.study.trials import best, pareto
from tests.training.search.studies import ACCURACY, BATCH, LOSS, RATE, SECONDS, STRATEGY, journal, loss, run, search

SPEC = search(BATCH, RATE, STRATEGY, sampler="random")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.open(journal(tmp_path), "x", SPEC)


def reopened(tmp_path: Path) -> Study:
    return Study.open(journal(tmp_path), "x", SPEC)


def test_a_trial_goes_its_way(tmp_path: Path, study: Study) -> None:
    asked = study.ask()
    assert study.running() == [asked]
    study.update_trial(asked.number, runs={1: "aa"})
    study.update_trial(asked.number, runs={2: "bb"}, seconds=3.5)
    study.report(asked.number, 200, 0.5)
    study.report(asked.number, 100, 1.0)
    study.report(asked.number, 100, 7.0)
    study.report(asked.number, 300, math.nan)
    (running,) = read_study(journal(tmp_path), "x", SPEC)
    assert (running.state, running.curve, running.ended) == ("running", [(100, 1.0), (200, 0.5)], None)
    study.update_trial(asked.number, spread=0.01)
    study.finish(asked.number, [0.4])
    for record in (*read_study(journal(tmp_path), "x", SPEC), *study.records(), *reopened(tmp_path).records()):
        assert (record.number, record.state, record.point, record.values) == (0, "finished", asked.point, (0.4,))
        assert record.runs == {1: "aa", 2: "bb"}
        assert (record.seconds, record.spread, record.failure, record.cause) == (3.5, 0.01, None, "")
        assert record.started is not None
        assert record.ended is not None
        assert 0 <= record.ended - record.started < 60
    assert study.running() == []


def test_every_end_is_kept_with_its_reason(study: Study) -> None:
    for _ in range(5):
        study.ask()
    study.report(1, 100, 0.3)
    study.prune(1, "worse than others")
    study.infeasible(2, "diverged", "val/loss became nan")
    study.fail(3, "killed", "signal 9")
    study.finish(4, [math.nan])
    told = [(one.state, one.failure, one.cause, one.values) for one in study.records()]
    assert told == [
        ("running", None, "", ()),
        ("pruned", None, "worse than others", ()),
        ("infeasible", "diverged", "val/loss became nan", ()),
        ("failed", "killed", "signal 9", ()),
        ("infeasible", "diverged", "the objective is NaN", ()),
    ]


def test_telling_twice_changes_nothing(tmp_path: Path, study: Study) -> None:
    for _ in range(4):
        study.ask()
    for _ in range(2):
        study.finish(0, [0.1])
        study.prune(1, "first")
        study.infeasible(2, "out of memory", "first")
        study.fail(3, "killed", "first")
        study = reopened(tmp_path)
    before = study.records()
    for number in range(4):
        study.fail(number, "unknown", "again")
        study.finish(number, [9.0])
        study.prune(number, "again")
        study.infeasible(number, "diverged", "again")
        study.update_trial(number, seconds=1.0)
        study.report(number, 10, 1.0)
        study.seed_value(number, 0, 1.0)
    assert study.records() == before
    assert [one.state for one in before] == ["finished", "pruned", "infeasible", "failed"]


def test_given_points_come_first_and_once(tmp_path: Path) -> None:
    first = {"batch_size": 64, "learning_rate": 0.1, "strategy": "ddp"}
    whole = {"batch_size": 32, "learning_rate": 0.5, "strategy": STRATEGY.choices[2]}
    spec = search(BATCH, RATE, STRATEGY, sampler="random", points=(first, {"batch_size": 16}))
    study = Study.open(journal(tmp_path), "x", spec)
    assert [(one.state, one.point, one.given) for one in study.records()] == [
        ("waiting", first, True), ("waiting", {"batch_size": 16}, True),
    ]  # fmt: skip
    assert study.ask() == AskedTrial(0, first)
    study = Study.open(journal(tmp_path), "x", spec)
    partly, drawn = study.ask(), study.ask()
    assert partly.point["batch_size"] == 16
    assert RATE.contains(partly.point["learning_rate"])
    assert study.give(whole)
    assert not study.give(whole)
    assert not study.give(first)
    assert not study.give(drawn.point)
    assert not study.give({"batch_size": 16})
    assert study.give({"batch_size": 32})
    assert study.ask().point == whole
    assert [one.given for one in study.records()] == [True, True, False, True, True]


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"batch_size": 48}, r"points.batch_size: batch_size: 48 is not among 16 ... 1024"),
        ({"learning_rate": 5.0}, r"points.learning_rate: .*wider space"),
        ({"strategy": "sync"}, r"points.strategy: "),
        (
            {"momentum": 0.9},
            "points.momentum: is not a dimension. Use one of the dimensions of this search: batch_size, learning_rate",
        ),
    ],
)
def test_what_is_no_point_is_refused(study: Study, point: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study.give(point)
    assert study.records() == []


def test_a_killed_driver_leaves_its_trials_to_the_next(tmp_path: Path, study: Study) -> None:
    run(study, 3)
    flying = [study.ask(), study.ask()]
    study.report(flying[0].number, 100, 0.5)
    later = reopened(tmp_path)
    assert later.running() == flying
    later.report(flying[0].number, 200, 0.4)
    later.finish(flying[0].number, [0.3])
    later.infeasible(flying[1].number, "out of memory", "no room")
    assert [one.state for one in later.records()] == ["finished"] * 4 + ["infeasible"]
    assert later.records()[3].curve == [(100, 0.5), (200, 0.4)]


def test_the_sampler_and_the_pruner_may_change_on_the_way(tmp_path: Path) -> None:
    for sampler, pruner in (("random", "none"), ("tpe", "median"), ("qmc", "asha"), ("tpe", "hyperband")):
        study = Study.open(journal(tmp_path), "x", search(BATCH, RATE, sampler=sampler, pruner=pruner))
        for asked in [study.ask() for _ in range(5)]:
            study.report(asked.number, 2700, loss(asked.point))
            study.should_prune(asked.number)
            study.finish(asked.number, [loss(asked.point)])
    records = study.records()
    assert len({str(one.point) for one in records}) == 20
    found = best(records, study.spec)
    assert found is not None
    assert found.values[0] == min(loss(one.point) for one in records)


def test_other_objectives_are_another_study(tmp_path: Path) -> None:
    Study.open(journal(tmp_path), "x", search(BATCH))
    for objectives in ((ACCURACY,), (LOSS, SECONDS)):
        with pytest.raises(ConfigError, match="objective: differs from the objective of the stored study"):
            Study.open(journal(tmp_path), "x", search(BATCH, objectives=objectives))


def test_two_objectives_with_curves_failures_and_a_front(tmp_path: Path) -> None:
    spec = search(BATCH, RATE, objectives=(LOSS, SECONDS), target=0.3)
    study = Study.open(journal(tmp_path), "x", spec)
    for number in range(20):
        asked = study.ask()
        value = loss(asked.point)
        study.report(asked.number, 100, value + 1)
        if number == 3:
            study.prune(asked.number, "by hand")
        elif number % 5 == 4:
            study.infeasible(asked.number, "diverged", "nan")
        else:
            study.finish(asked.number, [value, math.inf if number == 1 else 1 / asked.point["batch_size"]])
    records = Study.open(journal(tmp_path), "x", spec).records()
    assert records[3].curve
    assert records[1].values[1] == math.inf
    front = pareto(records, spec)
    assert best(records, spec) in front
    assert all(a.values[1] > b.values[1] for a, b in itertools.pairwise(front))


def test_several_studies_share_a_store(tmp_path: Path) -> None:
    one = Study.open(journal(tmp_path), "one", SPEC)
    two = Study.open(journal(tmp_path), "two", SPEC)
    run(one, 2)
    run(two, 3)
    assert [len(read_study(journal(tmp_path), name, SPEC)) for name in ("one", "two", "three")] == [2, 3, 0]
    assert [one.number for one in two.records()] == [0, 1, 2]


def test_importing_it_loads_neither_optuna_nor_torch() -> None:
    import subprocess
    import sys

    code = "import sys, scalebook.training.search.study.study\n"
    code += "sys.exit(any(one in sys.modules for one in ('optuna', 'torch', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
