"""A process of a run that stands still is named, with since when, until it goes on."""

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from scalebook.training.jobs.executor import LocalExecutor, LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, JobStart, Progress
from scalebook.training.supervisor.job_watch import LOOK_S, STILL_S, StandstillWatch
from tests.training.benches import wait_for

PR_SET_NAME = 15


@dataclass
class Run:
    """A job of this process and its forks, and the watch over it. `now` is the time that the watch is told."""

    job: JobFolder
    watch: StandstillWatch
    pids: list[int] = field(default_factory=list)
    now: float = 100.0

    def worker(self, number: int, *, computes: bool) -> int:
        if (pid := os.fork()) == 0:
            ctypes.CDLL(None).prctl(PR_SET_NAME, f"worker {number}".encode(), 0, 0, 0)
            while True:
                if not computes:
                    time.sleep(60)
        wait_for(lambda: psutil.Process(pid).name() == f"worker {number}", "its name")
        self.pids.append(pid)
        return pid

    def told(self, later_s: float = LOOK_S) -> str:
        """What stands still so much later, without the time of day."""
        self.now += later_s
        self.watch.look(self.now)
        return self.job.stands_still()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    job = JobFolder(tmp_path / ("a" * 32))
    job.path.mkdir()
    job.write(JobRequest(job.id, 1.0, "e", "sqlite://", 1, 2))
    started = JobStart(LocalHandle.of_this_process(), time.time())
    job.write(started)
    job.write(Progress(1.0, "training", 10))
    made = Run(job, StandstillWatch(job, started))
    monkeypatch.setattr(LocalExecutor, "processes", lambda self, handle: [os.getpid(), *made.pids])
    try:
        yield made
    finally:
        for pid in made.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_a_suspended_process_is_told_at_once_and_until_it_goes_on(run: Run) -> None:
    run.worker(0, computes=True)
    pid = run.worker(1, computes=False)
    assert run.told() == ""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "its stop")
    began = time.time()
    words = f"worker 1 (process {pid}) is suspended; `kill -CONT {pid}` resumes it"
    told = run.told()
    since, said = told.removeprefix("since ").split(" ", 1)
    assert said == words
    assert since in {time.strftime("%H:%M:%S", time.localtime(began + late)) for late in range(-2, 60)}
    assert run.told(30.0) == told, "since the same time"
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: psutil.Process(pid).status() != psutil.STATUS_STOPPED, "its going on")
    assert run.told() == ""
    assert not run.job.standstill_file.exists()


def test_a_worker_that_computes_nothing_while_another_does_is_named(run: Run) -> None:
    busy, still = run.worker(0, computes=True), run.worker(1, computes=False)
    assert run.told() == ""
    used = sum(psutil.Process(busy).cpu_times()[:2])
    wait_for(lambda: sum(psutil.Process(busy).cpu_times()[:2]) - used > 0.5, "worker 0 to compute")
    assert run.told(STILL_S).endswith(f"worker 1 (process {still}) has computed nothing")


def test_a_run_that_stands_still_as_a_whole_is_told_only_while_it_trains(run: Run) -> None:
    run.worker(0, computes=False)
    run.worker(1, computes=False)
    assert (run.told(), run.told(STILL_S - LOOK_S)) == ("", "")
    words = "the run has made no update, and none of its processes has computed anything"
    assert run.told().endswith(words)
    run.job.write(Progress(2.0, "validating", 10))
    assert run.told() == ""


def test_what_stood_still_when_a_run_ended_is_told_no_more(run: Run) -> None:
    pid = run.worker(1, computes=False)
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "its stop")
    assert run.told()
    (run.job.path / "result.json").write_text('{"status": "finished", "ended": 1.0}', encoding="utf-8")
    assert run.job.stands_still() == ""
