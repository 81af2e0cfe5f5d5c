import os
import time
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from scalebook.training.base.failures import ADVICE, OR_RESUME, FailureClass
from scalebook.training.base.processes import ProcessId
from scalebook.training.jobs import job_folder
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import (
    STOPPED,
    JobFolder,
    JobRequest,
    JobStart,
    Progress,
    Result,
    StopRequest,
    TrialOf,
)


def folder(tmp_path: Path) -> JobFolder:
    made = JobFolder(tmp_path / "0123456789abcdef")
    made.path.mkdir()
    made.write(JobRequest(made.id, 1.5, "e", "sqlite://", 3, 2, cell="a-cell", name="a-cell seed 3"))
    return made


def test_what_is_written_is_read(tmp_path: Path) -> None:
    job = folder(tmp_path)
    started = JobStart(LocalHandle.of_this_process(), 2.0, [0, 1], ["GPU-a"])
    progress = Progress(3.0, "training", 10, 640, 1.0, 1, 0.5, 4.0, {"val/loss": 0.25})
    result = Result("failed", 4.0, "killed", "why", "what to do", 1)
    for record in (started, progress, result):
        job.write(record)
    assert (job.started(), job.progress(), job.result()) == (started, progress, result)
    assert job.request().cell == "a-cell"
    assert job.request().title == "a-cell seed 3"
    assert sorted(path.name for path in job.path.iterdir()) == [
        "job.json",
        "process.json",
        "progress.json",
        "result.json",
    ]


def test_a_request_keeps_the_trial_it_is_for(tmp_path: Path) -> None:
    job = JobFolder(tmp_path / "0")
    job.path.mkdir()
    request = JobRequest("0", 1.0, "e", "sqlite://", 3, 2, trial=TrialOf("a search", 7, "batch 64", True, 500))
    job.write(request)
    assert job.request() == request


def test_a_stop_request_has_who_asked_first_why_and_when(tmp_path: Path) -> None:
    job, before = folder(tmp_path), time.time()
    assert job.stop_request() is None
    job.ask_to_stop("pruned at 2,000 samples", "search")
    job.ask_to_stop(STOPPED, "user")
    job.note_sent("SIGTERM")
    request = job.stop_request()
    assert request is not None
    assert (request.by, request.why, request.failure) == ("search", "pruned at 2,000 samples", None)
    assert request.sent == ["SIGTERM"]
    assert before <= request.when <= time.time()


@pytest.mark.parametrize(
    ("content", "by", "why"), [("", "signal", STOPPED), (STOPPED, "user", STOPPED), ("pruned", "search", "pruned")]
)
def test_the_stop_file_of_an_earlier_version_is_read(tmp_path: Path, content: str, by: str, why: str) -> None:
    job = folder(tmp_path)
    job.stop_file.write_text(content, encoding="utf-8")
    os.utime(job.stop_file, (7.0, 7.0))
    assert job.stop_request() == StopRequest(by, why, 7.0)  # type: ignore[arg-type]


def test_a_job_whose_process_died_is_told_as_long_as_its_end_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = folder(tmp_path)
    assert job.outcome() is None
    job.write(JobStart(LocalHandle(replace(ProcessId.of(), start=1)), time.time()))
    outcome = job.outcome()
    assert outcome is not None
    assert (outcome.failure, outcome.cause) == ("killed", "its process has died; the cause is not recorded yet")
    monkeypatch.setattr(job_folder, "disk_problem", lambda folder: "the disk of /data is full (0.0 MB left)")
    outcome = job.outcome()
    assert outcome is not None
    assert outcome.why == "disk full: its process has died; the disk of /data is full (0.0 MB left)"
    job.write(Result("finished", 4.0))
    assert job.outcome() == Result("finished", 4.0)


def test_to_resume_is_advised_only_where_there_is_a_checkpoint(tmp_path: Path) -> None:
    job = folder(tmp_path)
    assert job.advice(FailureClass.DISK_FULL) == "Free disk space, then run again."
    checkpoint = job.path / "checkpoints" / "last.ckpt"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"torn")
    assert job.advice(FailureClass.DISK_FULL) == "Free disk space, then run again."
    with ZipFile(checkpoint, "w") as file:
        file.writestr("data.pkl", b"")
    assert job.advice(FailureClass.DISK_FULL) == f"Free disk space, then run again. {OR_RESUME}"
    assert job.advice(FailureClass.MODEL_CODE) == ADVICE[FailureClass.MODEL_CODE]


def test_the_state_follows_from_the_files_and_the_process_table(tmp_path: Path) -> None:
    job = folder(tmp_path)
    assert job.state() == "waiting"
    job.stop_file.touch()
    assert job.state() == "stopped"
    job.write(JobStart(LocalHandle.of_this_process(), time.time()))
    assert job.state() == "stopping"
    job.stop_file.unlink()
    assert job.state() == "running"
    job.write(JobStart(LocalHandle(replace(ProcessId.of(), start=1)), time.time()))
    assert job.state() == "failed"
    job.write(Result("finished", time.time()))
    assert job.state() == "finished"


def test_a_job_of_an_executor_that_is_not_known_has_a_broken_record(tmp_path: Path) -> None:
    job = folder(tmp_path)
    job.write(JobStart(LocalHandle.of_this_process(), 2.0))
    path = job.path / "process.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"local"', '"elsewhere"'), encoding="utf-8")
    assert job.started() is None
    result = job.result()
    assert result is not None
    assert result.cause == f"{path} is broken (handle.executor is 'elsewhere', not one of local, ray)"


def test_the_tail_is_the_end_of_a_long_log(tmp_path: Path) -> None:
    job = folder(tmp_path)
    assert job.tail() == ""
    job.log.write_text("".join(f"line {number}\n" for number in range(100_000)), encoding="utf-8")
    assert job.tail(2) == "line 99998\nline 99999"
