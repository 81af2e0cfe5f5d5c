"""The real fork server and the real runner: asynchronous training in two workers, ended in every way."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scalebook.training.base.processes import ProcessId
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, Result
from scalebook.training.jobs.launcher import RUNNER
from scalebook.training.jobs.supervisor_handle import status
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import create_run, experiment_id, open_store
from tests.training.benches import Bench, until_state, wait_for

if TYPE_CHECKING:
    from mlflow.entities import Run

pytestmark = pytest.mark.long

LOADED_S = 120.0
SHARED_MEMORY = Path("/dev/shm")


class Real:
    """A workspace in which two workers train a small classifier on digits for longer than any test."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.client = open_store(bench.workspace)
        self.experiment = experiment_id(self.client, bench.workspace, "test")

    def job(self, epochs: int = 10_000) -> JobFolder:
        config: dict[str, Any] = {
            "seed_everything": 1,
            "threads": 1,
            "trainer": {
                "strategy": {
                    "class_path": "scalebook.training.lightning.AsyncPS",
                    "init_args": {"rule": "async", "workers": 2},
                },
                "accelerator": "cpu",
                "max_epochs": epochs,
                "enable_model_summary": False,
            },
            "model": {"class_path": "scalebook.training.zoo.models.MLPClassifier"},
            "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 64}},
            "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.02}},
        }
        run_id = create_run(self.client, self.experiment, "a run", {}, config)
        uri = self.bench.workspace.tracking_uri()
        request = JobRequest(run_id, time.time(), "test", uri, seed=1, workers=2, strategy="AsyncPS")
        return self.bench.add(request, config)

    def training(self) -> tuple[JobFolder, ProcessId, list[ProcessId]]:
        """A job in the middle of training, its main process, and the others of it."""
        job = self.job()
        until_state(job, "running", "failed")
        wait_for(lambda: (at := job.progress()) is not None and at.updates > 50, "50 updates")
        started = job.started()
        assert started is not None, job.tail()
        return job, started.handle.process, started.handle.process.descendants()

    def end(self, job: JobFolder, main: ProcessId) -> tuple[Result, "Run"]:
        """Result and MLflow run of a job that is ending, when nothing of its session is left."""
        result: Result = wait_for(job.result, "a result")
        wait_for(lambda: main.session() == [], "the end of its processes")
        wait_for(lambda: not job.unrecorded.exists(), "MLflow to be told")
        return result, self.client.get_run(job.id)


@pytest.fixture
def real(bench: Bench) -> Iterator[Real]:
    before = set(SHARED_MEMORY.iterdir())
    bench.supervise(runner=RUNNER, grace_s=5.0)
    made = Real(bench)
    yield made
    new = set(SHARED_MEMORY.iterdir()) - before
    wait_for(lambda: not any(path.exists() for path in new), f"nothing to be left of {new}")  # others' come and go


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_a_run_and_one_whose_workers_die(real: Real) -> None:
    """One test, for the fork server takes 6 s to load."""
    finished = real.job(epochs=2)
    wait_for(lambda: (now := status(real.bench.workspace)) and now.warm == "ready", "the warm process", LOADED_S)
    assert "threads" not in real.bench.log(), real.bench.log()
    assert until_state(finished, "finished", "failed") == "finished", finished.tail()
    run = real.client.get_run(finished.id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics[names.VAL_LOSS] < 2.0

    job, main, others = real.training()
    others[-1].send(signal.SIGKILL)  # worker 1, which the run can spare
    wait_for(lambda: "worker 1 died: process" in job.tail(), "the others to be told")
    assert job.result() is None
    others[0].send(signal.SIGKILL)  # worker 0, which holds the run's record
    result, run = real.end(job, main)
    assert (result.failure, run.info.status) == ("worker lost", "FAILED"), result
    assert result.worker == 0
    assert str(others[0].pid) in result.cause


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_one_is_stopped_and_one_is_killed(real: Real) -> None:
    job, main, _ = real.training()
    job.stop_file.touch()
    result, run = real.end(job, main)
    assert (result.status, run.info.status) == ("stopped", "KILLED")
    assert run.data.metrics[names.VAL_LOSS] > 0

    job, main, others = real.training()
    assert others
    main.send(signal.SIGKILL)
    result, run = real.end(job, main)
    assert (result.failure, run.info.status) == ("killed", "FAILED")
    assert run.data.tags[names.TAG_CAUSE] == f"its main process (pid {main.pid}) was ended by SIGKILL"
