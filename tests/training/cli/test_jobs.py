"""`scalebook jobs` as a person sees it."""

import json
import shutil
import time
from dataclasses import replace

import pytest

from scalebook.training.base.files import BrokenRecord, records
from scalebook.training.cli.main import main
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, JobStart, LostWorker, Progress, Result, TrialOf
from tests.training.benches import Bench, until_state, wait_for


@pytest.fixture(autouse=True)
def here(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(bench.workspace.root))


def test_the_list_shows_state_progress_time_left_and_reason(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    failed, running, waiting = bench.job(name="a seed 1"), bench.job(name="a seed 2"), bench.job(name="b seed 1")
    failed.write(Result("failed", time.time(), "diverged", "train/loss became nan after 12 updates"))
    running.write(JobStart(LocalHandle.of_this_process(), time.time(), [0]))
    running.write(Progress(time.time(), "training", 42, 420, 1.0, 0, 0.42, 40.0))
    assert main(["jobs", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", failed.id[:8], running.id[:8], waiting.id[:8]]
    assert lines[1].split(maxsplit=1)[1].startswith("failed")
    assert lines[1].endswith("diverged: train/loss became nan after 12 updates")
    assert "████------  42 %" in lines[2]
    assert "40 s" in lines[2]
    assert "a seed 2" in lines[2]
    assert lines[3].endswith("no supervisor is running")


def test_the_list_as_json(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    job = bench.job()
    assert main(["jobs", "list", "--json"]) == 0
    (facts,) = json.loads(capsys.readouterr().out)
    assert (facts["id"], facts["state"], facts["waits"]) == (job.id, "waiting", "no supervisor is running")
    assert facts["progress"] is None


def test_the_list_names_lost_workers(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    job = bench.job()
    job.write(Result("finished", time.time()))
    job.note_lost(LostWorker(1, 0.0, "killed", 24, restarted=True))
    with (job.path / "lost.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"worker": 2')  # half a line
    assert main(["jobs", "list"]) == 0
    said = "worker 1 died at 1970-01-01 00:00:00 UTC after 24 samples and was started again (killed)"
    assert capsys.readouterr().out.splitlines()[1].endswith(said)


def test_the_list_reads_an_ended_job_once_and_again_when_it_has_changed(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    broken = JobFolder.broken

    def counted(self: JobFolder) -> list[BrokenRecord]:
        read.append(self.id)
        return broken(self)

    def listed() -> list[str]:
        read.clear()
        assert main(["jobs", "list"]) == 0
        return capsys.readouterr().out.splitlines()

    monkeypatch.setattr(JobFolder, "broken", counted)
    first, second, waiting = bench.job(name="a seed 1"), bench.job(name="a seed 2"), bench.job(name="a seed 3")
    for job in (first, second):
        job.write(Result("finished", time.time()))
    before = listed()
    assert sorted(read) == sorted([first.id, second.id, waiting.id])
    assert listed() == before
    assert read == [waiting.id]
    first.write(Result("failed", time.time(), "diverged", "train/loss became nan"))
    assert listed()[1].endswith("diverged: train/loss became nan")
    assert read == [first.id, waiting.id] or read == [waiting.id, first.id]
    (second.path / "result.json").write_text("{", encoding="utf-8")  # in place: its folder stays as it was
    assert any(line.startswith(f"broken: {second.path}") for line in listed())
    assert any(line.startswith(f"broken: {second.path}") for line in listed())  # and is not kept
    (bench.workspace.cache / "jobs.json").write_text('{"lines": [{"id": 3}]}', encoding="utf-8")
    shutil.rmtree(second.path)
    assert [line.split()[0] for line in listed()] == ["ID", first.id[:8], waiting.id[:8]]


def test_an_empty_list_says_what_to_do(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "list"]) == 0
    assert "scalebook notebook run" in capsys.readouterr().out


def test_following_a_log_ends_with_the_job(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    job = bench.job(seconds=0.5, end="crash")
    bench.supervise()
    assert main(["jobs", "log", job.id[:10], "--follow"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"scalebook: job {job.id}")
    assert text.endswith("RuntimeError: the stand-in was told to crash\n")
    assert text == job.log.read_text(encoding="utf-8")


def test_stop_and_a_second_stop(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    job = bench.job(seconds=60)
    bench.supervise()
    until_state(job, "running")
    assert main(["jobs", "stop", job.id[:10]]) == 0
    wait_for(job.result, "a result")
    assert main(["jobs", "stop", job.id[:10]]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{job.id[:8]} is stopping"
    assert second == f"{job.id[:8]} has already ended: stopped"


def test_all_that_wait_or_run_are_stopped_but_no_trials(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    one, other, trial, ended = bench.job(), bench.job(), bench.job(), bench.job()
    asked = records.load(trial.path / "job.json", JobRequest)
    assert asked is not None
    trial.write(replace(asked, trial=TrialOf("a search", 0)))
    ended.write(Result("finished", 1.0))
    assert main(["jobs", "stop", "--all"]) == 0
    assert capsys.readouterr().out == "2 jobs asked to stop\n"
    assert [job.state() for job in (one, other, trial, ended)] == ["stopped", "stopped", "waiting", "finished"]
    assert main(["jobs", "stop"]) == 2
    assert "takes either an ID or --all, but not both" in capsys.readouterr().err


def test_an_unknown_id_is_a_mistake_said_in_one_line(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "log", "nothing"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("scalebook: error: nothing: is not a job of")
    assert error.count("\n") == 1
