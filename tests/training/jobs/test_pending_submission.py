"""Runs that MLflow has and that never got a job: gone, whoever died or failed in between."""

import errno
import multiprocessing
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from scalebook.training.base.files.machine_errors import NoRoom
from scalebook.training.jobs import job_requests
from scalebook.training.search import search_requests
from scalebook.training.search.search_folder import SearchFolder
from scalebook.training.tracking import names, run_start
from scalebook.training.tracking.run_start import (
    abandoned,
    create_run,
    experiment_id,
    open_store,
    submission,
    submissions_folder,
    withdraw,
)
from tests.training.benches import Bench, wait_for
from tests.training.jobs.test_job_requests import submit

pytestmark = pytest.mark.long


def die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it lives")


def no_room(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def runs(bench: Bench) -> list[str]:
    """The states of all runs that MLflow shows."""
    client = open_store(bench.workspace)
    experiments = [one.experiment_id for one in client.search_experiments()]
    return [run.info.status for run in client.search_runs(experiments)]


def in_a_process_that_dies(bench: Bench) -> None:
    process = multiprocessing.get_context("fork").Process(target=submit, args=(bench,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("place", ["create_run", "_write"])
def test_a_submitter_that_is_killed_leaves_no_run(bench: Bench, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    open_store(bench.workspace)
    with monkeypatch.context() as patch:
        patch.setattr(run_start if place == "create_run" else job_requests, place, die)
        in_a_process_that_dies(bench)
    assert runs(bench) == ([] if place == "create_run" else ["SCHEDULED"])
    assert len(abandoned(bench.workspace)) == 1
    bench.supervise()
    wait_for(lambda: not list(submissions_folder(bench.workspace).iterdir()), "the supervisor to withdraw it")
    assert runs(bench) == []
    assert list(bench.workspace.jobs.iterdir()) == []


def test_killed_when_the_folder_stands_it_is_a_job_like_any_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(bench.workspace)
    unlink = Path.unlink

    def die_at_the_mark(path: Path, missing_ok: bool = False) -> None:
        if path.parent == submissions_folder(bench.workspace):
            die()
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", die_at_the_mark)
        in_a_process_that_dies(bench)
    (mark,) = abandoned(bench.workspace)
    assert withdraw(bench.workspace, mark) == 0
    assert runs(bench) == ["SCHEDULED"]
    assert len(job_requests.all_jobs(bench.workspace)) == 1
    assert not mark.exists()


def test_a_disk_without_room_leaves_no_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(job_requests, "_write", no_room)
        with pytest.raises(NoRoom, match="No space left"):
            submit(bench, seeds=(1, 2))
    assert runs(bench) == []
    assert list(submissions_folder(bench.workspace).iterdir()) == []


def test_what_cannot_be_withdrawn_at_once_is_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(job_requests, "_write", no_room)
        patch.setattr("scalebook.training.tracking.run_start.withdraw", no_room)
        with pytest.raises(NoRoom, match="No space left"):
            submit(bench)
    assert "a run that has no job could not be removed from MLflow yet" in capsys.readouterr().err
    assert runs(bench) == ["SCHEDULED"]
    (mark,) = abandoned(bench.workspace)
    assert withdraw(bench.workspace, mark) == 1
    assert runs(bench) == []


def test_nobody_touches_what_is_being_submitted_or_recorded_elsewhere(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with submission(bench.workspace):
        assert len(list(submissions_folder(bench.workspace).iterdir())) == 1
        assert abandoned(bench.workspace) == []
    assert list(submissions_folder(bench.workspace).iterdir()) == []
    left = submissions_folder(bench.workspace) / ("0" * 32)
    left.write_text(bench.workspace.tracking_uri(), encoding="utf-8")
    (submissions_folder(bench.workspace) / "x' or 'a' = 'a").write_text(
        bench.workspace.tracking_uri(), encoding="utf-8"
    )
    assert abandoned(bench.workspace) == [left]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{bench.workspace.root}/other.db")
    assert abandoned(bench.workspace) == []


def test_a_test_whose_command_died_has_failed(bench: Bench) -> None:
    client = open_store(bench.workspace)
    experiment = experiment_id(client, bench.workspace, "test")
    left = submissions_folder(bench.workspace) / ("0" * 32)
    left.parent.mkdir()
    left.touch()
    told = {names.TAG_SUBMISSION: left.name, names.TAG_TEST: "largest batch"}
    run_id = create_run(client, experiment, "a test", told, {})
    assert withdraw(bench.workspace, left) == 1
    run = client.get_run(run_id)
    assert (run.info.status, run.data.tags[names.TAG_STATUS]) == ("FAILED", "failed")


def test_a_search_that_could_not_be_written_leaves_no_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_requests, "body_of", lambda _spec: {})
    monkeypatch.setattr(SearchFolder, "write_body", no_room)
    spec: Any = SimpleNamespace(storage=None)
    with pytest.raises(NoRoom, match="No space left"):
        search_requests._make(bench.workspace, spec, "what", "a search", None, None, {})
    assert runs(bench) == []
    assert list(bench.workspace.studies.iterdir()) == []
