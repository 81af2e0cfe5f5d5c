"""Runs that read alike are told apart."""

from dataclasses import replace

from scalebook.training.notebook.run_labels import labels
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunRecord


def record(run: str, name: str, rate: str = "0.1", started: float = 0.0) -> RunRecord:
    return RunRecord(run, name, "1", "FINISHED", started, None, tags={names.TAG_LR_ASKED: rate})


def test_what_differs_stands_behind_names_that_are_alike_and_behind_no_others() -> None:
    records = [
        record("aaaaaaaa", "one"),
        record("bbbbbbbb", "two", "0.1"),
        record("cccccccc", "two", "0.01"),
        record("dddddddd", "three"),
        record("eeeeeeee", "three"),
    ]
    assert labels(records, lambda one: one.name) == {
        "aaaaaaaa": "one",
        "bbbbbbbb": "two · lr 0.1",
        "cccccccc": "two · lr 0.01",
        "dddddddd": "three · dddddd",
        "eeeeeeee": "three · eeeeee",
    }


def test_the_moment_tells_runs_of_one_rate_apart() -> None:
    first, second = labels(
        [record("a", "x", started=1_790_000_000.0), record("b", "x", started=1_790_090_000.0)], lambda one: one.name
    ).values()
    assert first.startswith("x · ")
    assert first != second
    assert "lr" not in first + second


def test_a_trial_has_its_number_in_its_name_and_is_pruned_where_its_search_says_so() -> None:
    tags = {names.TAG_CELL: "many", names.TAG_SEED: "1", names.TAG_TRIAL: "21", names.TAG_STATUS: "stopped"}
    run = RunRecord("a", "many trial 21 seed 1", "1", "KILLED", 0.0, 9.0, tags)
    assert (run.title, run.outcome) == ("many · trial 21 · seed 1", "stopped")
    assert replace(run, tags=tags | {names.TAG_TRIAL_STATE: "pruned"}).outcome == "pruned"
