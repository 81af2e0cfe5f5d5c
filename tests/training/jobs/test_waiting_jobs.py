from dataclasses import replace

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import records
from scalebook.training.cli.main import main
from scalebook.training.jobs.job_folder import JobRequest, Result, TrialOf
from scalebook.training.jobs.job_requests import all_jobs
from scalebook.training.jobs.schedule import in_order
from scalebook.training.jobs.waiting_jobs import move
from tests.training.benches import Bench


def order(bench: Bench) -> list[str]:
    """The names of those that wait, the next one first."""
    return [one.name for one in in_order([job.queued() for job in all_jobs(bench.workspace)])]


def test_a_waiting_job_is_moved_past_its_neighbours_or_before_all(bench: Bench) -> None:
    a, b, c = (bench.job(name=name) for name in "abc")
    assert order(bench) == ["a", "b", "c"]
    assert move(bench.workspace, c, "earlier")
    assert order(bench) == ["a", "c", "b"]
    assert move(bench.workspace, b, "first")
    assert order(bench) == ["b", "a", "c"]
    assert move(bench.workspace, b, "later")
    assert order(bench) == ["a", "b", "c"]
    assert not move(bench.workspace, a, "earlier")
    assert not move(bench.workspace, c, "later")
    urgent = bench.job(name="urgent", priority=1)
    assert move(bench.workspace, c, "first")
    assert order(bench) == ["c", "urgent", "a", "b"]
    assert move(bench.workspace, urgent, "later")
    assert order(bench) == ["c", "a", "urgent", "b"]


def test_a_run_passes_runs_and_trials_stay_where_they_are(bench: Bench) -> None:
    a, trial, b = (bench.job(name=name) for name in ("a", "trial", "b"))
    asked = records.load(trial.path / "job.json", JobRequest)
    assert asked is not None
    trial.write(replace(asked, trial=TrialOf("a search", 0)))
    assert move(bench.workspace, b, "earlier")
    assert order(bench) == ["b", "trial", "a"]
    assert not move(bench.workspace, trial, "earlier")
    a.write(Result("stopped", 1.0))
    with pytest.raises(ConfigError, match="is stopped"):
        move(bench.workspace, a, "first")


def test_moving_by_command(bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(bench.workspace.root))
    bench.job(name="a")
    b = bench.job(name="b")
    assert main(["jobs", "move", b.id, "first"]) == 0
    assert main(["jobs", "move", b.id, "earlier"]) == 0
    assert capsys.readouterr().out == f"{b.id} has moved\n{b.id} is already at that place\n"
    assert order(bench) == ["b", "a"]


def test_a_broken_turn_leaves_the_job_where_it_was_put(bench: Bench) -> None:
    bench.job(name="a")
    b = bench.job(name="b")
    (b.path / "turn.json").write_text("{", encoding="utf-8")
    assert order(bench) == ["a", "b"]
