import io
import time
from pathlib import Path

import pytest

from scalebook.training.cli.run_lines import RunLines, bar
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, Progress, Result, State


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def _job(root: Path, name: str, fraction: float | None = None) -> JobFolder:
    job = JobFolder(root / name)
    job.path.mkdir()
    job.write(JobRequest(name, time.time(), "page", "sqlite://", seed=1, workers=1, name=f"{name} seed 1"))
    if fraction is not None:
        values = {"train/loss": 0.5, "val/accuracy": 0.96444}
        job.write(Progress(time.time(), "training", 1240, 39680, 12.0, fraction=fraction, left_s=20.0, metrics=values))
    return job


def test_a_line_says_how_far_a_run_is(tmp_path: Path) -> None:
    job = _job(tmp_path, "one", 0.375)
    board = RunLines(Terminal(), [job], {"one": "val/accuracy"})
    assert board.line(job, "running") == (
        "one seed 1  ████------   38 %  20 s left  accuracy 0.9644       1,240 updates in 12 s"
    )
    assert "train/loss 0.5" in RunLines(Terminal(), [job], {"one": "val/bits_per_dim"}).line(job, "running")
    job.write(Result("failed", time.time(), "diverged", "train/loss became nan", "Lower the learning rate."))
    assert board.line(job, "failed").endswith("diverged: train/loss became nan")


def test_a_waiting_run_says_why(tmp_path: Path) -> None:
    job = _job(tmp_path, "one")
    assert RunLines(Terminal(), [job], {}).line(job, "waiting", "behind 1 run").endswith("waiting: behind 1 run")


def test_a_terminal_is_rewritten_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "24")
    jobs = [_job(tmp_path, "one", 0.5), _job(tmp_path, "two")]
    out = Terminal()
    board = RunLines(out, jobs, {})
    states: dict[str, State] = {"one": "running", "two": "waiting"}
    board.draw(states, {})
    first = out.getvalue()
    assert first.count("\n") == 2
    assert all(len(line.replace("\x1b[2K", "").replace("\x1b[J", "")) < 60 for line in first.splitlines())
    board.draw(states, {})
    assert out.getvalue().removeprefix(first).startswith("\x1b[2F")


def test_more_runs_than_the_terminal_has_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "6")
    jobs = [_job(tmp_path, f"job{number}") for number in range(10)]
    states: dict[str, State] = {job.id: "running" if job.id == "job7" else "waiting" for job in jobs}
    out = Terminal()
    RunLines(out, jobs, {}).draw(states, {})
    text = out.getvalue()
    assert "job7 seed 1" in text
    assert "... and 7 more" in text
    assert text.count("\n") == 4


def test_a_file_gets_a_line_only_when_there_is_news(tmp_path: Path) -> None:
    job = _job(tmp_path, "one", 0.5)
    out = io.StringIO()
    board = RunLines(out, [job], {})
    states: tuple[State, ...] = ("waiting", "waiting", "running", "running", "finished", "finished")
    for state in states:
        board.draw({"one": state}, {})
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert "\x1b" not in out.getvalue()
    assert "100 %  finished" in lines[-1]


def test_a_bar_without_block_characters() -> None:
    assert bar(0.5, "ascii") == "#" * 5 + "-" * 5
    assert bar(None, "utf-8") == "-" * 10
