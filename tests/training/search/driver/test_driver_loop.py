"""A search from its start to its end, with the real supervisor, driver, study and MLflow; trials are proxies."""

import signal
from dataclasses import replace
from functools import partial

import pytest

from benchmarks.search_drills import audit
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files.record_folder import forget_records
from scalebook.training.base.trust import trust
from scalebook.training.experiments.description import Description
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.job_environment import has_environment
from scalebook.training.search import search_requests
from scalebook.training.search.driver.driver_loop import MEND, MILDER, budget_end
from scalebook.training.search.driver.trial_jobs import side_by_side
from scalebook.training.search.search_folder import SearchFolder
from scalebook.training.search.study.trials import State, TrialRecord
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import open_store
from tests.training.benches import Bench, wait_for
from tests.training.searching import BASE, STAND_IN, Range

pytestmark = pytest.mark.long


def test_a_search_ends_with_all_its_trials_on_record(searches: Range) -> None:
    folder, records = searches.run(trials=6, seeds=2, points=[{"batch_size": 64, "learning_rate": 0.1}])
    result, progress = folder.result(), folder.progress()
    assert result is not None
    assert (result.status, result.cause) == ("finished", "6 trials")
    assert [one.state for one in records] == ["finished"] * 6
    assert records[0].given
    assert records[0].values[0] == pytest.approx(0.1 * 1.25 + 0.0015)  # the mean of seeds 1 and 2
    assert records[0].spread is not None
    samples, losses = zip(*records[0].curve, strict=True)
    assert samples == (1000, 2000, 3000, 4000)
    assert losses == pytest.approx([0.201, 0.151, 0.1 * 4 / 3 + 0.001, 0.126])  # of the first seed
    assert progress is not None
    assert (progress.done, progress.best_trial, progress.running) == (6, 0, 0)
    assert audit(folder, records, statuses=False) == []
    parent = open_store(searches.bench.workspace).get_run(folder.id)
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics[names.SEARCH_BEST] == records[0].values[0]
    assert parent.data.tags[names.TAG_BEST_TRIAL] == "0"


def test_failures_are_results_and_memory_is_run_out_of_once(searches: Range) -> None:
    space = {"batch_size": {"grid": [1, 64, 512, 1024]}, "learning_rate": {"grid": [0.1, 10.0]}}
    folder, records = searches.run(space=space, sampler="grid", trials=8)
    by_point = {(one.point["batch_size"], one.point["learning_rate"]): one for one in records}
    assert by_point[64, 0.1].state == "finished"
    assert (by_point[64, 10.0].state, by_point[64, 10.0].failure) == ("infeasible", "diverged")
    assert (by_point[1, 0.1].state, by_point[1, 0.1].cause) == ("failed", "ValueError: a batch of one")
    assert {by_point[512, 0.1].failure, by_point[1024, 0.1].failure} == {"out of memory"}
    ran = [one for one in (by_point[512, 0.1], by_point[1024, 0.1]) if one.runs]
    spared = [one for one in (by_point[512, 0.1], by_point[1024, 0.1]) if not one.runs]
    # side by side two may hit the wall before either is known; afterwards nobody does
    assert ran
    assert all("ran out of memory with" in one.cause for one in spared)
    assert audit(folder, records, statuses=False) == []


@pytest.mark.thorough
def test_too_many_failures_end_it_with_the_reason(searches: Range) -> None:
    space = {"learning_rate": {"log_uniform": [0.01, 1.0]}}
    base = {**BASE, "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 1}}}
    folder, records = searches.run(config=base, space=space, failures=3, trials=20)
    result = folder.result()
    assert result is not None
    assert result.status == "failed"
    assert "trials failed (the limit is failures: 3); the last cause: ValueError: a batch of one" in result.cause
    in_turn = side_by_side(folder.spec(searches.description), searches.bench.workspace)
    # two failures are not too many; meanwhile as many as there is room for run, wait, and are made anew
    assert len(records) <= 2 + 3 * in_turn
    assert open_store(searches.bench.workspace).get_run(folder.id).info.status == "FAILED"


def ended(*states: State) -> list[TrialRecord]:
    return [
        TrialRecord(number, state, {}, cause="" if state == "finished" else f"cause {number}", runs={1: "a run"})
        for number, state in enumerate(states)
    ]


def test_a_search_of_which_no_trial_has_finished_is_failed() -> None:
    mixed = budget_end(ended("failed", "pruned", "pruned"), "3 trials")
    assert (mixed.status, mixed.advice) == ("failed", MEND)
    assert mixed.cause == "none of 3 trials finished, 2 were pruned; the last cause: cause 0"
    pruned = budget_end(ended("pruned", "pruned"), "2 trials")
    assert (pruned.status, pruned.advice) == ("failed", MILDER)
    assert pruned.cause == "none of 2 trials finished, 2 were pruned; the last cause: cause 1"
    assert budget_end([], "0 trials within the time budget").status == "failed"
    one = budget_end(ended("finished", "failed", "pruned"), "3 trials")
    assert (one.status, one.cause, one.failed) == ("finished", "3 trials, 1 of them failed; the last cause: cause 1", 1)


@pytest.mark.thorough
def test_it_is_extended_by_starting_it_with_a_larger_budget(searches: Range) -> None:
    folder, first = searches.run(trials=2)
    again = searches.start(trials=4)
    assert again == folder
    assert searches.until_ended(again) == "finished"
    records = searches.records(folder)
    assert [one.runs for one in records[:2]] == [one.runs for one in first]
    assert [one.state for one in records] == ["finished"] * 4
    assert audit(folder, records, statuses=False) == []


@pytest.mark.thorough
def test_stopped_and_resumed_with_a_point_given_meanwhile(searches: Range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWS", "64")
    folder = searches.start(trials=8)
    searches.until_done(folder, 2)
    search_requests.stop(folder)
    assert searches.until_ended(folder) == "stopped"
    assert open_store(searches.bench.workspace).get_run(folder.id).info.status == "KILLED"
    search_requests.give(folder, [{"batch_size": 32, "learning_rate": 0.05}, {"batch_size": 3}])
    before = set(job_requests.all_jobs(folder.workspace))
    assert {rows for job in before if (rows := job.tail(3).partition("rows ")[2][:2])} == {"64"}
    monkeypatch.setenv("ROWS", "256")
    search_requests.resume(folder, searches.description, trials=9)
    assert searches.until_ended(folder) == "finished"
    records = searches.records(folder)
    assert sum(1 for one in records if one.state == "finished") == 9
    after = set(job_requests.all_jobs(folder.workspace)) - before
    assert {rows for job in after if (rows := job.tail(3).partition("rows ")[2][:3])} == {"256"}, (
        "of the shell that resumes it"
    )
    assert not has_environment(folder.path)
    assert [one.point for one in records if one.given] == [{"batch_size": 32, "learning_rate": 0.05}]
    assert "a manually added point is left out: points.batch_size" in folder.log.read_text(encoding="utf-8")
    assert audit(folder, records, statuses=False) == []


@pytest.mark.sampled
@pytest.mark.parametrize("victims", ["driver", "supervisor", "everything"])
def test_killed_and_gone_on_with(searches: Range, victims: str) -> None:
    folder = searches.start(trials=8, seeds=2)
    searches.until_done(folder, 2)
    kill(folder, victims)
    searches.bench.supervise(runner=STAND_IN)
    assert searches.until_ended(folder) == "finished"
    records = searches.records(folder)
    assert [one.state for one in records] == ["finished"] * 8
    assert audit(folder, records, statuses=False) == []


@pytest.mark.thorough
@pytest.mark.parametrize("driver", ["tests.training.search.dying_driver"], indirect=True)
def test_killed_before_the_study_knows_of_a_run_it_still_counts_as_one(searches: Range) -> None:
    folder, records = searches.run(trials=3)
    assert (folder.path / "died").exists()
    assert [(one.state, len(one.runs)) for one in records] == [("finished", 1)] * 3
    assert audit(folder, records, statuses=False) == []


@pytest.mark.thorough
def test_trials_whose_runs_could_not_begin_are_run_again(bench: Bench, description: Description) -> None:
    now = bench.supervise(runner="tests.training.jobs.nowhere:run", retry_s=0.1)
    searches = Range(bench, description)
    folder = searches.start(trials=4)
    failed = wait_for(
        lambda: [job for job in job_requests.all_jobs(bench.workspace) if job.state() == "failed"], "a failure"
    )
    assert not any(job.claimed() for job in failed)
    now.send(signal.SIGKILL)
    wait_for(lambda: supervisor_handle.running(bench.workspace) is None, "the supervisor to be gone")
    bench.supervise(runner=STAND_IN)
    assert searches.until_ended(folder) == "finished"
    records = searches.records(folder)
    assert [one.state for one in records] == ["finished"] * 4
    assert audit(folder, records, statuses=False) == []


def kill(folder: SearchFolder, victims: str) -> None:
    driving = folder.driving()
    now = supervisor_handle.running(folder.workspace)
    assert driving is not None
    assert now is not None
    if victims in ("driver", "everything"):
        driving.process.send(signal.SIGKILL)
    if victims in ("supervisor", "everything"):
        now.send(signal.SIGKILL)
    if victims == "everything":
        for job in job_requests.all_jobs(folder.workspace):
            if (started := job.started()) is not None:
                started.handle.process.send(signal.SIGKILL)
    wait_for(
        lambda: supervisor_handle.running(folder.workspace) != now or victims == "driver", "the supervisor to be gone"
    )


@pytest.mark.thorough
def test_a_driver_that_comes_to_an_end_leaves_nothing_that_looks_like_a_death(searches: Range) -> None:
    """Stopped, finished, and started with nothing more to do. What is counted: `supervisor/test_search_drivers.py`."""
    folder = searches.start(trials=8)
    wait_for(folder.driven, "a driver")
    search_requests.stop(folder)
    assert searches.until_ended(folder) == "stopped"
    assert_left_in_order(folder)
    search_requests.resume(folder, searches.description)
    assert searches.until_ended(folder) == "finished"
    assert_left_in_order(folder)
    assert searches.start(trials=8) == folder
    assert searches.until_ended(folder) == "finished"
    assert_left_in_order(folder)
    assert audit(folder, searches.records(folder), statuses=False) == []


def assert_left_in_order(folder: SearchFolder) -> None:
    wait_for(lambda: not folder.driven(), "the driver to leave")
    assert folder.driving() is None


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trial ends by itself. To be asked for before `searches`."""
    monkeypatch.setenv("STAND_IN_S", "600")


@pytest.mark.thorough
def test_a_driver_that_is_asked_to_leave_has_not_died(slow: None, searches: Range) -> None:
    folder = searches.start(trials=8)
    wait_for(partial(drives, folder), "a driver at work")
    driving, supervisor = folder.driving(), supervisor_handle.running(searches.bench.workspace)
    assert driving is not None
    assert supervisor is not None
    supervisor.send(signal.SIGSTOP)  # it would start another one at once
    try:
        driving.process.send(signal.SIGTERM)
        wait_for(lambda: not driving.process.alive(), "it to leave")
        assert folder.driving() is None
    finally:
        supervisor.send(signal.SIGCONT)
    wait_for(partial(drives, folder), "the next driver")
    search_requests.stop(folder)
    assert searches.until_ended(folder) == "stopped"


def drives(folder: SearchFolder) -> bool:
    """Whether a driver lives that has begun to work."""
    driving, progress = folder.driving(), folder.progress()
    return folder.driven() and driving is not None and progress is not None and progress.time > driving.started


def test_a_mistake_is_said_before_anything_is_made(searches: Range) -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        searches.start(space={"batch_size": {"powers_of_two": [10, 100]}})
    assert list(searches.bench.workspace.studies.iterdir()) == []


def test_a_search_that_was_found_waits_for_trust(searches: Range) -> None:
    """One that somebody has put there: not driven, not gone on with, and its store outside is not opened."""
    found, _ = searches.run("planted", trials=1)
    wait_for(lambda: not found.driven(), "its driver to leave")
    found.undriven()
    (found.path / "signature").unlink()
    (found.path / "result.json").unlink()
    ours, _ = searches.run("planted", trials=1)  # the supervisor has looked at both
    assert ours != found
    assert found.state() == "waiting"
    with pytest.raises(
        ConfigError, match=r"was found in this folder, but not submitted here\. To run it, trust the folder"
    ):
        search_requests.resume(found, searches.description)
    found.require_trust(reading=True)
    found.write(replace(found.request(), storage="postgresql://elsewhere/x"))
    forget_records()
    with pytest.raises(ConfigError, match="was found in this folder"):
        found.require_trust(reading=True)
    found.write(replace(ours.request(), id=found.id))
    forget_records()
    trust(searches.bench.workspace)
    assert searches.until_ended(found) in ("finished", "failed")


@pytest.mark.thorough
def test_a_search_that_was_found_can_be_deleted(searches: Range) -> None:
    found, _ = searches.run(trials=1)
    wait_for(lambda: not found.driven(), "its driver to leave")
    (found.path / "signature").unlink()
    (found.path / "result.json").unlink()
    search_requests.delete(found)
    assert not found.path.exists()
