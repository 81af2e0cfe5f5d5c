"""A folder from a stranger, or a copy of one's own, whose records name processes of this user that live: none is
ended."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scalebook.training.base.processes import ProcessId
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli import jobs as commands
from scalebook.training.cli.main import main
from scalebook.training.jobs import job_requests, usage
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobStart
from tests.training.benches import Bench, clear, until_state, wait_for


@pytest.fixture
def victim() -> Iterator["subprocess.Popen[bytes]"]:
    """A shell of this user's, which leads a session, and what it has started."""
    process = subprocess.Popen(["sh", "-c", "sleep 120 & wait"], start_new_session=True)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def planted(bench: Bench, process: ProcessId) -> JobFolder:
    """A job that says it runs as this process."""
    job = bench.job(seconds=60)
    job.write(JobStart(LocalHandle(process), time.time(), [0]))
    job.log.write_text("training\n", encoding="utf-8")
    return job


def test_stop_ends_no_process_that_a_planted_record_names(bench: Bench, victim: "subprocess.Popen[bytes]") -> None:
    named = ProcessId.of(victim.pid)
    job = planted(bench, named)
    bench.supervise(grace_s=0.2)
    job_requests.stop(job)
    result = wait_for(job.result, "its end")
    assert (named.alive(), "got SIG" in result.cause) == (True, False)
    assert result.status == "stopped" or "not a process of this run" in result.cause
    started = job.started()
    assert started is not None
    for level in ("terminate", "kill"):
        started.executor.stop(started.handle, level)
    assert started.executor.clear(started.handle), "nothing of it is ours to clear away"
    time.sleep(0.2)
    assert victim.poll() is None
    assert job.state() == result.status


def test_nor_the_rest_of_a_session_whose_leader_is_gone(bench: Bench) -> None:
    words = ["sh", "-c", "sleep 120 >/dev/null & echo $!"]
    leader = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE)
    named = ProcessId.of(leader.pid)
    assert leader.stdout is not None
    left = ProcessId.of(int(leader.stdout.readline()))
    try:
        leader.stdout.close()
        leader.wait(10)
        job = planted(bench, named)
        bench.supervise(grace_s=0.2)
        assert wait_for(job.result, "its end").status == "failed"
        assert left.alive()
    finally:
        os.kill(left.pid, signal.SIGKILL)


def test_a_copy_of_a_workspace_does_not_end_the_runs_of_the_other(bench: Bench, tmp_path: Path) -> None:
    job = bench.job(seconds=60)
    bench.supervise()
    until_state(job, "running")
    copy = Workspace(tmp_path / "copy")
    shutil.copytree(bench.workspace.root, copy.root, ignore=shutil.ignore_patterns("supervisor*"))
    try:
        copied = JobFolder(copy.jobs / job.id)
        assert (copied.started(), copied.state()) == (job.started(), "failed")
        job_requests.stop(copied)
        started = copied.started()
        assert started is not None
        started.executor.stop(started.handle, "kill")
        assert started.executor.clear(started.handle)
        assert job.state() == "running"
    finally:
        clear(copy)


def test_reading_a_file_or_a_link_to_one_that_is_written_proves_nothing(tmp_path: Path) -> None:
    kept, link, me = tmp_path / "kept", tmp_path / "link", ProcessId.of()
    kept.write_text("1", encoding="utf-8")
    link.symlink_to(kept)
    assert not me.writes_to([kept])
    with kept.open("rb"):
        assert not me.writes_to([kept])
    with kept.open("ab"):
        assert me.writes_to([tmp_path / "none", kept])
        assert not me.writes_to([link])
        assert not ProcessId(me.pid, me.start - 1, me.boot).writes_to([kept])
    assert not me.writes_to([kept])


SPOILERS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "100 GB": lambda path: path.touch() or os.truncate(path, 10**11),  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("what", SPOILERS)
def test_whatever_lies_in_a_job_s_folder_nobody_waits_for_it_nor_reads_all_of_it(
    bench: Bench, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(bench.workspace.root))
    names = ["log.txt", "config.yaml", "stop", "usage.jsonl", "curve.jsonl", "progress.json", "result.json",
             "process.json", "turn.json", "signature"]  # fmt: skip
    jobs = {name: bench.job() for name in names}
    for name, job in jobs.items():
        (job.path / name).unlink(missing_ok=True)
        SPOILERS[what](job.path / name)
    began = time.monotonic()
    assert main(["jobs", "list"]) == 0
    assert all(job.id[:8] in capsys.readouterr().out for job in list(jobs.values())[:1])
    for job in jobs.values():
        job.state(), job.tail(), job.stop_request(), usage.read_usage(job)
        if job is not jobs["log.txt"]:
            assert main(["jobs", "log", job.id]) == 0
    if what != "100 GB":
        assert main(["jobs", "log", jobs["log.txt"].id]) == 2
    assert time.monotonic() - began < 30


def test_a_long_log_comes_whole_and_in_pieces(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(bench.workspace.root))
    monkeypatch.setattr(commands, "PIECE", 64)
    text, job = "".join(f"line {number} é日本\n" for number in range(100)) + "x" * 200, bench.job()
    job.log.write_text(text, encoding="utf-8")
    assert main(["jobs", "log", job.id]) == 0
    assert capsys.readouterr().out == text
