"""The seam carries a second executor: by the contract, and with the supervisor above it."""

import time
from typing import Any

import pytest

from scalebook.training.jobs.executor import EXECUTORS
from scalebook.training.jobs.supervisor_handle import SupervisorLock
from scalebook.training.supervisor.job_watch import JobLimits
from scalebook.training.supervisor.supervisor_loop import LAUNCHERS, SupervisorLoop
from tests.training.benches import STAND_IN, Bench, wait_for
from tests.training.jobs.contract import ExecutorContract
from tests.training.jobs.plain import PlainExecutor, PlainLauncher


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> PlainExecutor:
    made = PlainExecutor()
    monkeypatch.setitem(EXECUTORS, made.name, lambda: made)
    monkeypatch.setitem(LAUNCHERS, made.name, PlainLauncher)
    return made


class TestPlainExecutor(ExecutorContract):
    @pytest.fixture
    def executor(self, plain: PlainExecutor) -> PlainExecutor:
        return plain


def test_the_supervisor_starts_watches_and_ends_jobs_of_any_executor(
    plain: PlainExecutor, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Any] = [
        bench.job(seconds=0.2),
        bench.job(seconds=60, deaf=True, stubborn=True, child=True),
        bench.job(end="exit"),
    ]
    lock = SupervisorLock(bench.workspace)
    assert lock.acquire()
    turns = SupervisorLoop(lock, JobLimits(poll_s=0.02, grace_s=0.3), plain, STAND_IN, ())
    monkeypatch.setattr(turns.recorder, "poll", lambda: None)  # these jobs have no MLflow run
    stubborn = jobs[1]

    def turned(condition: Any) -> Any:
        turns.run_once()
        return condition()

    try:
        wait_for(lambda: turned(stubborn.started), "its process")
        assert stubborn.started().machine == "plainly this one"
        stubborn.ask_to_stop("enough")
        wait_for(lambda: turned(lambda: not turns.open), "the end of all")
    finally:
        turns.close()
        lock.release()
    finished, stopped, failed = (job.result() for job in jobs)
    assert (finished.status, stopped.status, failed.status) == ("finished", "stopped", "failed")
    assert stopped.cause == "enough; it did not stop by itself and got SIGTERM and SIGKILL"
    pid = jobs[2].started().handle.process.pid
    assert failed.cause.startswith(f"its main process (process {pid}) ended with exit code 7 without a result")
    assert time.time() - stopped.ended < 60
