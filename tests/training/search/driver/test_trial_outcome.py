"""What the runs of a trial mean, from folders as they are left."""

import json
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.processes import ProcessId
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.search.definition import SearchSpec, read_search
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import (
    STOPPED,
    UNWATCHED,
    JobFolder,
    JobRequest,
    JobStart,
    Progress,
    Result,
    TrialOf,
)
from scalebook.training.search.driver import trial_outcome
from scalebook.training.search.driver.trial_jobs import CurveTail, Trial
from tests.training.searching import BASE, SPACE

LONG_DEAD = ProcessId(2**22 - 1, 1, "")


def spec(description: Description, **body: Any) -> SearchSpec:
    return read_search({"config": BASE, "space": SPACE, "objective": "val/loss", **body}, None, description)


class Jobs:
    """Job folders of a trial in any state."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def job(self, result: Result | None = None, *, loss: float | None = 0.5, seconds: float = 2.0) -> JobFolder:
        folder = JobFolder(self.root / f"job{len(list(self.root.iterdir()))}")
        folder.path.mkdir()
        folder.write(JobRequest(folder.id, 1.0, "test", "sqlite://", 1, 1, trial=TrialOf("search", 0)))
        if result is not None:
            folder.write(JobStart(LocalHandle(LONG_DEAD), 100.0))
            folder.write(result)
        if loss is not None:
            folder.write(Progress(1.0, "ending", 90, 1000, seconds, metrics={"best/val/loss": loss, "val/loss": 9.0}))
        return folder

    def curve(self, folder: JobFolder, *points: tuple[int, float, float]) -> JobFolder:
        """Samples, seconds and loss of each validation."""
        lines = [
            json.dumps({"updates": 1, "samples": samples, "seconds": seconds, "metrics": {"val/loss": loss}})
            for samples, seconds, loss in points
        ]
        folder.curve.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


def failed(failure: str, cause: str = "why") -> Result:
    return Result("failed", 103.0, failure, cause, "advice")


FINISHED = Result("finished", 103.0)


def test_a_trial_is_the_mean_of_its_seeds_with_an_interval(jobs: Jobs, description: Description) -> None:
    trial = Trial(0, {}, {1: jobs.job(FINISHED, loss=0.4), 2: jobs.job(FINISHED, loss=0.6)})
    found = trial_outcome.trial_end(trial, spec(description, seeds=2), [1, 2])
    assert found is not None
    assert (found.state, found.values) == ("finished", (0.5,))
    assert found.spread == pytest.approx(12.706205 * 0.1)  # t(0.975, 1) x standard error
    assert (found.seconds, found.overhead) == (2.0, 1.0)  # from 100 to 103, of which 2 s were training


def test_it_goes_on_until_every_seed_has_ended(jobs: Jobs, description: Description) -> None:
    trial = Trial(0, {}, {1: jobs.job(FINISHED)})
    assert trial_outcome.trial_end(trial, spec(description, seeds=2), [1, 2]) is None
    trial.runs[2] = jobs.job(None)
    assert trial_outcome.outcome_of(trial.runs[2]) == "going"
    assert trial_outcome.trial_end(trial, spec(description, seeds=2), [1, 2]) is None


@pytest.mark.parametrize(
    ("result", "state", "failure"),
    [
        (failed("out of memory"), "infeasible", "out of memory"),
        (failed("diverged"), "infeasible", "diverged"),
        (failed("unknown"), "failed", "unknown"),
        (failed("killed", "its main process (pid 7) was ended by SIGKILL"), "failed", "killed"),
    ],
)
def test_one_seed_that_fails_ends_the_trial(
    jobs: Jobs, description: Description, result: Result, state: str, failure: str
) -> None:
    trial = Trial(0, {}, {1: jobs.job(result)})
    found = trial_outcome.trial_end(trial, spec(description, seeds=3), [1, 2, 3])
    assert found is not None
    assert (found.state, found.failure, found.cause) == (state, failure, result.cause)


def test_a_run_that_ended_with_everything_else_is_run_again(jobs: Jobs, description: Description) -> None:
    unwatched = jobs.job(failed("killed", f"its main process (pid 7) {UNWATCHED}"))
    assert trial_outcome.outcome_of(unwatched) == "again"
    with_the_search = jobs.job(Result("stopped", 103.0, cause="the search was stopped"))
    with_the_search.ask_to_stop("the search was stopped", "search")
    assert trial_outcome.outcome_of(with_the_search) == "again"
    by_a_signal = jobs.job(Result("stopped", 103.0, cause=STOPPED))
    by_a_signal.stop_file.touch()
    assert trial_outcome.outcome_of(by_a_signal) == "again"
    assert trial_outcome.trial_end(Trial(0, {}, {1: unwatched}), spec(description), [1]) is None


def test_a_run_that_never_began_is_run_again(jobs: Jobs, description: Description) -> None:
    """Its process came too late, or what starts runs was lost on the way: it says nothing of the point."""
    late = jobs.job(None, loss=None)
    late.write(failed("unknown", "none of the run's processes started"))
    assert trial_outcome.outcome_of(late) == "again"
    assert trial_outcome.trial_end(Trial(0, {}, {1: late}), spec(description), [1]) is None
    assert (
        trial_outcome.outcome_of(
            jobs.job(failed("unknown", "the last line of its log: none of the run's processes started"))
        )
        == "failed"
    )


def test_a_run_that_somebody_stopped_is_not(jobs: Jobs, description: Description) -> None:
    stopped = jobs.job(Result("stopped", 103.0, cause=STOPPED))
    stopped.ask_to_stop(STOPPED)
    found = trial_outcome.trial_end(Trial(0, {}, {1: stopped}), spec(description), [1])
    assert found is not None
    assert (found.state, found.failure) == ("failed", trial_outcome.BY_HAND)


def test_pruned_says_where(jobs: Jobs, description: Description) -> None:
    why = f"{trial_outcome.PRUNED} at 2,000 samples, because other trials were better at that point"
    found = trial_outcome.trial_end(
        Trial(0, {}, {1: jobs.job(Result("stopped", 103.0, cause=why))}), spec(description), [1]
    )
    assert found is not None
    assert (found.state, found.cause) == ("pruned", why)


@pytest.mark.parametrize("died", [failed("killed", UNWATCHED), Result("stopped", 103.0, cause="everything was")])
def test_one_that_is_to_be_pruned_is_so_too_when_its_run_has_died(
    died: Result, jobs: Jobs, description: Description
) -> None:
    trial = Trial(0, {}, {1: jobs.job(FINISHED), 2: jobs.job()}, pruned="pruned at 3,000 samples: others")
    assert trial_outcome.trial_end(trial, spec(description, seeds=2), [1, 2]) is None
    trial.runs[2] = jobs.job(died)
    assert trial_outcome.outcome_of(trial.runs[2]) == "again"
    found = trial_outcome.trial_end(trial, spec(description, seeds=2), [1, 2])
    assert found is not None
    assert (found.state, found.cause) == ("pruned", "pruned at 3,000 samples: others")


def test_a_trial_that_was_trained_to_its_last_sample_is_finished(jobs: Jobs, description: Description) -> None:
    """Even if its last validation showed that others are better: the wish to end it came too late."""
    why = f"{trial_outcome.PRUNED} at 4,000 samples, because other trials were better at that point"
    whole = Trial(0, {}, {1: jobs.job(FINISHED, loss=0.7)}, pruned=why)
    found = trial_outcome.trial_end(whole, spec(description), [1])
    assert found is not None
    assert (found.state, found.values, found.cause) == ("finished", (0.7,), "")
    half = trial_outcome.trial_end(whole, spec(description, seeds=2), [1, 2])
    assert half is not None
    assert (half.state, half.cause) == ("pruned", why)


def test_a_metric_that_nobody_records_fails_the_trial(jobs: Jobs, description: Description) -> None:
    found = trial_outcome.trial_end(Trial(0, {}, {1: jobs.job(FINISHED, loss=None)}), spec(description), [1])
    assert found is not None
    assert (found.state, found.cause) == ("failed", "its runs have not logged val/loss; they logged nothing")


def test_seconds_to_a_target(jobs: Jobs, description: Description) -> None:
    to_target = spec(description, objective=["val/loss", "seconds"], target=0.5)
    job = jobs.curve(jobs.job(FINISHED), (1000, 1.0, 0.9), (2000, 2.5, 0.5), (3000, 3.0, 0.4))
    found = trial_outcome.trial_end(Trial(0, {}, {1: job}), to_target, [1])
    assert found is not None
    assert found.values == (0.4, 2.5)


def test_a_target_that_is_missed(jobs: Jobs, description: Description) -> None:
    job = jobs.curve(jobs.job(FINISHED), (1000, 1.0, 0.9))
    to_target = spec(description, objective=["val/loss", "seconds"], target=0.5)
    both = trial_outcome.trial_end(Trial(0, {}, {1: job}), to_target, [1])
    assert both is not None
    assert both.values == (0.9, float("inf"))


def test_a_curve_is_read_by_whole_lines(jobs: Jobs) -> None:
    job = jobs.job(None)
    tail = CurveTail(job)
    point = {"updates": 1, "samples": 32, "seconds": 0.5, "metrics": {"val/loss": 1.0}}
    assert tail.news() == []
    with job.curve.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(point)}\n{json.dumps(point)[:5]}")
        file.flush()
        assert tail.news() == [point]
        file.write(f"{json.dumps(point)[5:]}\n")
    assert tail.news() == [point]
    assert tail.news() == []


def test_seeds_go_up_from_the_config_s_own(description: Description) -> None:
    assert spec(description, seeds=3).experiment.seeds(3) == [1, 2, 3]
