"""Why a process that left no result has ended. A request to stop explains only an end that came of it."""

import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from scalebook.training.base.failures import FailureClass
from scalebook.training.base.files.machine_errors import EXIT_NO_ROOM
from scalebook.training.base.processes import ProcessId
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import STOPPED, JobFolder, JobRequest, JobStart
from scalebook.training.supervisor import lost_jobs
from scalebook.training.supervisor.job_watch import JobLimits, JobWatch
from scalebook.training.supervisor.lost_jobs import explain

BY_USER = f"{STOPPED} in the app"


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    made = JobFolder(tmp_path / ("a" * 32))
    made.path.mkdir()
    made.write(JobRequest(made.id, 1.0, "e", "sqlite://", 1, 2))
    made.write(JobStart(LocalHandle(replace(ProcessId.of(), start=1)), 2.0))
    return made


def watched(job: JobFolder, *sent: str) -> JobWatch:
    """The watch over the job, whose process it has seen dead; `sent`: the signals that the supervisor has sent."""
    started = job.started()
    assert started is not None
    watch = JobWatch(job, started, JobLimits())
    for name in sent:
        watch._signal(time.monotonic(), name)
    watch.died, watch.ended = time.monotonic(), time.time()
    return watch


@pytest.mark.parametrize(
    ("asked", "sent", "code", "memory_kills", "status", "failure"),
    [
        (False, [], -signal.SIGKILL, 0, "failed", "killed"),
        (False, [], -signal.SIGKILL, 1, "failed", "out of memory"),
        (False, [], EXIT_NO_ROOM, 0, "failed", "disk full"),
        (True, [], -signal.SIGKILL, 0, "failed", "killed"),  # by somebody else, while it was stopping
        (True, [], -signal.SIGKILL, 2, "failed", "out of memory"),
        (True, ["SIGTERM"], -signal.SIGKILL, 1, "failed", "out of memory"),  # which the supervisor has not sent
        (True, [], EXIT_NO_ROOM, 0, "failed", "disk full"),
        (True, ["SIGTERM"], EXIT_NO_ROOM, 0, "failed", "disk full"),
        (True, [], 3, 0, "failed", "unknown"),
        (True, [], -signal.SIGSEGV, 0, "failed", "killed"),
        (True, [], None, 0, "failed", "killed"),  # nobody saw how, and nobody has sent anything
        (True, [], -signal.SIGTERM, 0, "stopped", None),
        (True, ["SIGTERM"], -signal.SIGTERM, 0, "stopped", None),
        (True, ["SIGTERM", "SIGKILL"], -signal.SIGKILL, 0, "stopped", None),
        (True, ["SIGTERM", "SIGKILL"], None, 0, "stopped", None),
    ],
)
def test_a_request_explains_an_end_only_by_a_signal_that_was_sent_for_it(
    job: JobFolder, asked: bool, sent: list[str], code: int | None, memory_kills: int, status: str, failure: str | None
) -> None:
    if asked:
        job.ask_to_stop(BY_USER)
    result = explain(watched(job, *sent), code, memory_kills)
    assert (result.status, result.failure) == (status, failure), result
    if status == "stopped":
        forced = f"; it did not stop by itself and got {' and '.join(sent)}" if sent else ""
        assert result.cause == BY_USER + forced
    else:
        assert ("which had been asked to stop" in result.cause) == (asked and failure != "disk full")


def test_a_request_that_came_after_the_death_explains_nothing(job: JobFolder) -> None:
    watch = watched(job)
    watch.ended = 7.0
    job.ask_to_stop(BY_USER)
    assert explain(watch, -signal.SIGTERM, 0).failure == "killed"


def test_a_disk_that_is_full_is_the_cause_where_nobody_saw_how_a_run_ended(
    job: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_jobs, "disk_problem", lambda folder: "the disk of /data is full (0.0 MB left)")
    job.ask_to_stop(f"{STOPPED} by SIGTERM to the run", "signal")
    result = explain(watched(job), None, 0)
    assert result.failure == "disk full"
    assert result.cause.endswith("the disk of /data is full (0.0 MB left)")


def test_the_next_supervisor_knows_what_this_one_has_sent_and_why(job: JobFolder) -> None:
    job.ask_to_stop(BY_USER)
    watched(job, "SIGTERM", "SIGKILL")  # of a supervisor that is killed now
    result = explain(watched(job), None, 0)
    assert (result.status, result.cause) == (
        "stopped",
        f"{BY_USER}; it did not stop by itself and got SIGTERM and SIGKILL",
    )


@pytest.mark.parametrize(
    ("doomed", "timed_out", "failure"),
    [
        ("", "no sign of life for 600 s", FailureClass.TIMED_OUT),
        ("its node has ended", "", FailureClass.WORKER_LOST),
    ],
)
def test_a_run_that_the_watch_ends_has_not_been_stopped_by_a_person(
    job: JobFolder, doomed: str, timed_out: str, failure: FailureClass
) -> None:
    first = watched(job)
    first.doomed, first.timed_out = doomed, timed_out
    first._signal(time.monotonic(), "SIGTERM")
    request = job.stop_request()
    assert request is not None
    assert (request.by, request.failure) == ("supervisor", failure)
    result = explain(watched(job), None, 0)  # by the supervisor after that one
    assert (result.status, result.failure) == ("failed", failure)
    assert result.cause == f"{doomed or timed_out}; ended by SIGTERM"
