"""Points that need not be run."""

from typing import Any

from scalebook.training.experiments.description import Description
from scalebook.training.experiments.search.definition import SearchSpec, read_search
from scalebook.training.search.driver.trial_source import MemoryWall, TriedPoints
from scalebook.training.search.study.trials import TrialRecord
from tests.training.searching import BASE

SPACE = {
    "batch_size": {"powers_of_two": [16, 1024]},
    "learning_rate": {"grid": [0.1, 1.0]},
    "workers": {"values": [1, 2]},
    "strategy": {"values": ["single", "ddp"]},
    "model.hidden": {"grid": [32, 64]},
}


def spec(description: Description, **body: Any) -> SearchSpec:
    return read_search({"config": BASE, "space": SPACE, "objective": "val/loss", **body}, None, description)


def point(
    batch: int, *, rate: float = 0.1, workers: int = 1, strategy: str = "ddp", hidden: int = 64
) -> dict[str, Any]:
    return {
        "batch_size": batch,
        "learning_rate": rate,
        "workers": workers,
        "strategy": strategy,
        "model.hidden": hidden,
    }


def out_of_memory(number: int, at: dict[str, Any]) -> TrialRecord:
    return TrialRecord(number, "infeasible", at, failure="out of memory", runs={1: "a run"})


def test_a_batch_as_large_for_each_worker_is_not_tried_again(description: Description) -> None:
    wall = MemoryWall(spec(description))
    assert wall.beyond(point(1024)) == ""
    assert wall.words() == ""
    wall.learn([out_of_memory(7, point(256))])
    assert wall.beyond(point(128)) == ""
    assert wall.beyond(point(256, rate=1.0)) == (
        "not run: trial 7 ran out of memory with 256 samples per worker, and this trial has 256"
    )
    assert wall.beyond(point(512, workers=2)).endswith("with 256 samples per worker, and this trial has 256")
    assert wall.beyond(point(256, workers=2)) == ""  # 128 each
    assert wall.words() == "out of memory with 256 samples per worker, or more"


def test_another_model_or_strategy_has_a_wall_of_its_own(description: Description) -> None:
    wall = MemoryWall(spec(description))
    wall.learn([out_of_memory(7, point(256))])
    assert wall.beyond(point(512, hidden=32)) == ""
    assert wall.beyond(point(512, strategy="single")) == ""
    wall.learn([out_of_memory(9, point(512, hidden=32)), out_of_memory(11, point(64))])
    assert wall.beyond(point(512, hidden=32)).startswith("not run: trial 9")
    assert wall.beyond(point(64)).startswith("not run: trial 11")
    assert wall.words() == "out of memory with 64 or 512 samples per worker, or more"


def test_only_runs_that_ran_out_of_memory_teach_it(description: Description) -> None:
    wall = MemoryWall(spec(description))
    diverged = TrialRecord(1, "infeasible", point(64), failure="diverged", runs={1: "a run"})
    not_run = TrialRecord(2, "infeasible", point(64), failure="out of memory")
    wall.learn([diverged, not_run])
    assert wall.beyond(point(1024)) == ""


def test_points_that_run_the_same_are_repeats(description: Description) -> None:
    repeats = TriedPoints(spec(description))
    repeats.learn([TrialRecord(3, "finished", point(64, strategy="single", workers=1), (0.5,), runs={1: "a run"})])
    found = repeats.of(point(64, strategy="single", workers=2))  # one process has one worker
    assert found is not None
    assert found.number == 3
    assert repeats.of(point(64, workers=2)) is None
    repeats.learn([TrialRecord(4, "failed", point(128), runs={1: "a run"})])
    assert repeats.of(point(128)) is None  # what failed says nothing of the point
