import dataclasses

import pytest

from scalebook.app.search import trial_charts, trial_data
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.space import Dimension
from scalebook.training.experiments.search.types import Objective, RateRule
from scalebook.training.search.search_folder import SearchProgress
from scalebook.training.search.study.trials import TrialRecord
from scalebook.training.tracking import names
from tests.app import searches
from tests.app.described import description

SPEC = searches.spec()
VIRTUAL = {"trainer": {"strategy": {"class_path": "AsyncPS", "init_args": {"host": "virtual"}}, "devices": 4}}
TWO = {"batch_size": 64, "learning_rate": 0.1, "strategy": "ddp", "workers": 2}


def finished(number: int, value: float, spread: float | None = None) -> TrialRecord:
    return TrialRecord(number, "finished", TWO, values=(value,), spread=spread, seconds=3.2)


def test_trials_are_counted_by_state() -> None:
    told = searches.records(SPEC, 100, running=4)
    counts = trial_data.counts(told)
    assert tuple(counts) == trial_data.STATES
    assert sum(counts.values()) == 100
    assert counts["running"] == 4
    assert counts["waiting"] == 0


def test_why_trials_could_not_run() -> None:
    told = [TrialRecord(i, "infeasible", {}, failure=why) for i, why in enumerate(["diverged"] * 2 + ["out of memory"])]
    assert trial_data.infeasible_words(told) == "2 diverged, 1 out of memory"
    assert trial_data.infeasible_words([finished(1, 1.0)]) == ""


def test_a_value_has_its_interval_and_its_unit() -> None:
    assert trial_data.reached(finished(1, 0.21034, 0.00123), SPEC) == "0.2103 ± 0.0012"
    assert trial_data.reached(finished(1, 12.34), searches.spec(objectives=(Objective("seconds", True),))) == "12.34 s"
    assert trial_data.reached(TrialRecord(1, "pruned", TWO), SPEC) == ""


def test_seconds_of_virtual_workers_are_called_so() -> None:
    spec = searches.spec(
        (searches.RATE,), objectives=(Objective("seconds", True),), experiment=Experiment(VIRTUAL, description())
    )
    assert trial_data.reached(finished(1, 12.34), spec) == "12.34 virtual s"
    told = [finished(i, 1.0 + i) for i in range(3)]
    figure = trial_charts.pareto(told, dataclasses.replace(spec, objectives=(Objective("val/loss", True),)), dark=False)
    assert figure is not None
    assert figure.layout.xaxis.title.text == "virtual seconds"
    assert "at the same time" not in trial_charts.pareto_reading(
        dataclasses.replace(spec, objectives=(Objective("val/loss", True),))
    )


def test_how_far_a_search_is() -> None:
    told = [finished(0, 1.0), TrialRecord(1, "failed", {}), TrialRecord(2, "running", {})]
    progress = SearchProgress(1.0, 2, 1, 8, left_s=185.0)
    assert trial_data.standing(progress, told, searches.spec(trials=8)) == (
        0.25,
        "2 of 8 trials, 1 running, about 3 min 05 s left",
    )
    assert trial_data.standing(None, [], searches.spec(trials=1)) == (0.0, "0 of 1 trial")
    added = trial_data.standing(progress, told, searches.spec(trials=20))  # before the driver has told of them
    assert added == (0.1, "2 of 20 trials, 1 running, about 3 min 05 s left")


def test_what_one_must_know_to_read_the_figures() -> None:
    assert "split over" in trial_data.notes(SPEC, None)[0]
    assert "per worker" in trial_data.notes(searches.spec(scaling="weak"), None)[0]
    assert trial_data.notes(searches.spec((searches.BATCH, searches.RATE)), None) == []
    timed = (Objective("val/loss", True), Objective("seconds", True))
    assert any("slowed each other down" in one for one in trial_data.notes(searches.spec(objectives=timed), None))
    alone = trial_data.notes(searches.spec(objectives=timed, exclusive=True), None)
    assert any("nothing else running on" in one for one in alone)
    assert not any("slowed each other down" in one for one in alone)
    played = trial_data.notes(
        searches.spec((searches.RATE,), objectives=timed, experiment=Experiment(VIRTUAL, description())), None
    )
    assert [one.split(":")[0] for one in played] == ["Virtual workers"]
    progress = SearchProgress(1.0, 2, 1, 8, overhead_s=0.21, note="out of memory with 512 samples")
    assert trial_data.notes(SPEC, progress)[-2:] == [
        "Overhead per trial: 0.2 s (median).",
        "out of memory with 512 samples",
    ]


def test_whether_seeds_tell_the_best_from_the_next() -> None:
    assert trial_data.resolution([finished(0, 1.0), finished(1, 2.0)], SPEC).startswith("With one seed per point")
    near = [finished(0, 1.0, 0.1), finished(1, 1.15, 0.1), finished(2, 1.18, 0.1), finished(3, 2.0, 0.1)]
    assert trial_data.resolution(near, SPEC) == (
        "2 other trials cannot be distinguished from the best trial with these seeds."
    )
    assert trial_data.resolution([near[0], near[3]], SPEC) == ""
    assert trial_data.resolution(near[:1], SPEC) == ""


def test_a_chart_says_of_a_trial_what_it_was_and_became() -> None:
    assert trial_data.hover(finished(7, 0.5), SPEC) == (
        "<b>trial 7</b> · batch 64, rate 0.1, ddp × 2<br>val/loss 0.5000 · 3.2 s"
    )
    pruned = TrialRecord(8, "pruned", TWO, curve=[(1437, 3.0), (2874, 2.5)])
    assert trial_data.hover(pruned, SPEC).endswith("pruned after 2,874 samples at 2.500")
    assert trial_data.hover(TrialRecord(9, "infeasible", TWO, failure="diverged"), SPEC).endswith("<br>diverged")


def test_what_comes_from_a_config_is_not_read_as_markup() -> None:
    strategy = Dimension("strategy", "values", choices=("<img src=x>",))
    found = trial_data.hover(TrialRecord(1, "running", {"strategy": "<img src=x>"}), searches.spec((strategy,)))
    assert "<img" not in found


def test_rows_are_by_number_and_say_why() -> None:
    failed = TrialRecord(2, "infeasible", TWO, failure="diverged", cause="Diverged: train/loss became nan")  # as once
    rows = trial_data.rows([failed, finished(1, 0.5, 0.01)], SPEC, {})
    assert [row.number for row in rows] == [1, 2]
    assert rows[0].values == (0.5,)
    assert rows[0].point == {"batch_size": "64", "learning_rate": "0.1", "strategy": "ddp", "workers": "2"}
    assert rows[1].why == "diverged: train/loss became nan"
    assert rows[1].values == (None,)


def test_a_trial_whose_run_lost_a_worker_says_so() -> None:
    trial = dataclasses.replace(finished(1, 0.5, 0.01), runs={1: "a", 2: "b"})
    lost = {"b": {names.TAG_WORKERS_LOST: "worker 1 died"}}
    rows = trial_data.rows([trial, finished(2, 0.6, 0.01)], SPEC, {}, lost)
    assert [row.why for row in rows] == ["lost a worker and continued: worker 1 died", ""]


def test_what_decides_is_important() -> None:
    shares = trial_data.importance(searches.records(SPEC, 400), SPEC)
    assert shares is not None
    assert sum(shares.values()) == pytest.approx(1.0)
    assert set(list(shares)[:2]) == {"batch_size", "learning_rate"}
    assert shares["workers"] < 0.05


def test_importance_of_few_trials_is_not_told() -> None:
    few = [finished(i, 1.0 + i) for i in range(trial_data.FEWEST - 1)]
    assert trial_data.importance(few, SPEC) is None
    alike = [finished(i, 1.0 + i) for i in range(30)]
    assert trial_data.importance(alike, SPEC) is None, "their points do not differ"


def test_importance_takes_every_kind_of_dimension_and_points_by_hand() -> None:
    space = (
        searches.RATE, searches.FEATURES, Dimension("model.dropout", "uniform", 0.0, 0.5),
        Dimension("model.layers", "grid", choices=(1, 2, 4)), searches.STRATEGY,
    )  # fmt: skip
    spec = searches.spec(space)
    told = searches.records(spec, 120)
    beyond = dataclasses.replace(
        next(one for one in told if one.state == "finished"), point={**told[0].point, "learning_rate": 5.0}, given=True
    )
    shares = trial_data.importance([*told, beyond], spec)
    assert shares is not None
    assert set(shares) == {one.name for one in space}
    assert next(iter(shares)) == "learning_rate"


def test_the_rate_that_is_applied_is_that_of_the_trials_batch() -> None:
    spec = searches.spec((searches.BATCH, searches.RATE, searches.WORKERS), rate=RateRule("linear"))
    points = [
        {"batch_size": 512, "learning_rate": 0.1, "workers": 1},
        {"batch_size": 64, "learning_rate": 0.2, "workers": 2},
    ]
    records = [TrialRecord(number, "finished", point, values=(1.0,)) for number, point in enumerate(points)]
    found = trial_data.factors(records, spec)
    assert found == {0: 2.0, 1: 32 / 256}  # two asynchronous workers, each with half of the batch
    assert trial_data.words(records[0], spec) == "batch 512, rate 0.1 per 256 samples, 1 worker"
    plain = searches.spec((searches.BATCH, searches.RATE))
    assert trial_data.factors(records, plain) == {}
    assert "per 256" not in trial_data.words(records[0], plain)
