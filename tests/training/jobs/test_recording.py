"""What MLflow says of runs whose processes died: the truth, and never RUNNING."""

import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from scalebook.training.jobs.job_folder import JobFolder, Result
from scalebook.training.supervisor.lost_jobs import main, write_result
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import create_run, experiment_id, open_store
from tests.training.benches import Bench, until_state, wait_for

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

pytestmark = pytest.mark.long


class Recorded:
    """A bench whose jobs have MLflow runs, which the proxy's process is said to have set RUNNING."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.client: MlflowClient = open_store(bench.workspace)
        self.experiment = experiment_id(self.client, bench.workspace, "test")

    def job(self, **behaviour: Any) -> JobFolder:
        run_id = create_run(self.client, self.experiment, "a run", {names.TAG_CELL: "a"}, {"model": {"width": 3}})
        return self.bench.job(run_id=run_id, **behaviour)

    def run(self, job: JobFolder) -> "Run":
        return self.client.get_run(job.id)

    def until_told(self, job: JobFolder) -> "Run":
        wait_for(lambda: job.result() is not None and not job.unrecorded.exists(), "MLflow to be told")
        return self.run(job)


@pytest.fixture
def recorded(bench: Bench) -> Recorded:
    return Recorded(bench)


def test_a_waiting_run_is_scheduled_with_its_tags_and_parameters(recorded: Recorded) -> None:
    run = recorded.run(recorded.job())
    assert run.info.status == "SCHEDULED"
    assert run.data.tags[names.TAG_CELL] == "a"
    assert run.data.params == {"model.width": "3"}
    assert run.info.artifact_uri.startswith(recorded.bench.workspace.artifacts.as_uri())


def test_a_killed_run_has_failed_with_class_cause_and_advice(recorded: Recorded) -> None:
    job = recorded.job(seconds=60)
    recorded.bench.supervise()
    until_state(job, "running")
    recorded.client.update_run(job.id, status="RUNNING")
    started = job.started()
    assert started is not None
    started.handle.process.send(signal.SIGKILL)
    run = recorded.until_told(job)
    assert run.info.status == "FAILED"
    assert run.info.end_time >= run.info.start_time
    assert run.data.tags[names.TAG_STATUS] == "failed"
    assert run.data.tags[names.TAG_FAILURE] == "killed"
    assert run.data.tags[names.TAG_CAUSE] == f"its main process (pid {started.handle.process.pid}) was ended by SIGKILL"
    assert run.data.tags[names.TAG_ADVICE]


def test_runs_stopped_before_their_start_or_by_force_are_killed(recorded: Recorded) -> None:
    forced, waiting = recorded.job(workers=64, seconds=60, deaf=True, stubborn=True), recorded.job(workers=64)
    recorded.bench.supervise()
    until_state(forced, "running")
    for job in (forced, waiting):
        job.stop_file.touch()
    for job in (forced, waiting):
        run = recorded.until_told(job)
        assert (run.info.status, run.data.tags[names.TAG_STATUS]) == ("KILLED", "stopped")


def test_what_a_dead_supervisor_left_untold_is_told_by_the_next(recorded: Recorded) -> None:
    job = recorded.job(seconds=60)
    first = recorded.bench.supervise()
    until_state(job, "running")
    started = job.started()
    assert started is not None
    started.handle.process.send(signal.SIGKILL)
    wait_for(job.result, "a result")
    first.send(signal.SIGKILL)
    wait_for(lambda: not first.alive(), "the supervisor's death")
    assert job.unrecorded.exists()  # the helper needs 2 s to import MLflow
    recorded.bench.supervise()
    assert recorded.until_told(job).info.status == "FAILED"


def test_a_run_that_is_no_longer_in_the_store_is_let_go(recorded: Recorded) -> None:
    told, missing = recorded.job(), recorded.bench.job()
    for job in (missing, told):
        write_result(job, Result("failed", time.time(), "killed", "why", "what to do"))
    assert main([str(missing.unrecorded), str(told.unrecorded)]) == 0
    assert not missing.unrecorded.exists()
    assert not told.unrecorded.exists()
    assert recorded.run(told).data.tags[names.TAG_CAUSE] == "why"


def test_the_mark_stays_when_mlflow_cannot_be_told(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    bench.workspace.database.write_text("no database", encoding="utf-8")
    job = bench.job()
    write_result(job, Result("failed", time.time(), "killed", "why", "what to do"))
    assert main([str(job.unrecorded)]) == 1
    assert job.unrecorded.exists()
    assert "file is not a database" in capfd.readouterr().err
