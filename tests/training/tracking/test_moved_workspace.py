"""A workspace that was moved or copied keeps its files to itself."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.tracking._tracking_service import utils

from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.tracking.moved_workspace import adopt_artifacts, store_with
from scalebook.training.tracking.run_reader import RunReader
from scalebook.training.tracking.run_start import client_after_fork, create_run, experiment_id, open_store
from tests.shared_files import Prepared, whole
from tests.training.runs import config, submitted

NAME = "my work %20 100% é's [x]"
"""Of the first folder, with what addresses escape and patterns of SQL treat as special."""


@pytest.fixture(autouse=True)
def _own_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(autouse=True)
def _as_in_processes_of_their_own() -> Iterator[None]:
    """MLflow keeps for each run of a process where its artifacts were."""
    utils._artifact_repos_cache.clear()
    yield
    utils._artifact_repos_cache.clear()


@pytest.fixture
def first(tmp_path: Path, prepared: Prepared) -> tuple[Workspace, str]:
    """A workspace with one run that has the artifact `text.txt`, and that run."""
    workspace = Workspace(tmp_path / NAME)
    prepared.open(workspace)
    client = open_store(workspace)
    run = create_run(client, experiment_id(client, workspace, "lab"), "one", {}, {})
    upload(client, run, tmp_path / "text.txt")
    return workspace, run


def upload(client: MlflowClient, run: str, path: Path) -> None:
    path.write_text("kept", encoding="utf-8")
    client.log_artifact(run, str(path))


def copied(workspace: Workspace, target: Path) -> Workspace:
    copy = Workspace(target)
    shutil.copytree(workspace.root, copy.root)
    whole(workspace.database, copy.database)
    utils._artifact_repos_cache.clear()
    return copy


def files(workspace: Workspace) -> list[str]:
    return sorted(str(path.relative_to(workspace.hidden)) for path in workspace.artifacts.rglob("*") if path.is_file())


def test_a_run_in_a_copy_leaves_the_original_as_it_was(first: tuple[Workspace, str], tmp_path: Path) -> None:
    original, run = first
    copy = copied(original, tmp_path / "copy")
    before, rows = files(original), addresses(original)
    client = open_store(copy)
    new = create_run(client, experiment_id(client, copy, "lab"), "two", {}, {})
    upload(client, new, tmp_path / "new.txt")
    upload(client, run, tmp_path / "more.txt")  # of the run that both have
    assert files(original) == before
    assert addresses(original) == rows
    expected = [f"artifacts/{run}/artifacts/more.txt", f"artifacts/{run}/artifacts/text.txt"]
    assert files(copy) == sorted([*expected, f"artifacts/{new}/artifacts/new.txt"])


@pytest.mark.parametrize("opened", [open_store, lambda w: RunReader(w.tracking_uri()).client])
def test_after_a_move_anybody_s_client_finds_the_artifacts_of_old_runs(
    first: tuple[Workspace, str], tmp_path: Path, opened: object
) -> None:
    original, run = first
    moved = Workspace(original.root.rename(tmp_path / "moved & 50%"))
    utils._artifact_repos_cache.clear()
    assert callable(opened)
    opened(moved)
    plain = MlflowClient(moved.tracking_uri())
    assert [each.path for each in plain.list_artifacts(run)] == ["text.txt"]
    assert Path(plain.download_artifacts(run, "text.txt")).read_text(encoding="utf-8") == "kept"
    upload(client_after_fork(moved.tracking_uri()), run, tmp_path / "late.txt")
    assert not original.root.exists()


def test_a_folder_seen_by_two_paths_keeps_its_addresses(first: tuple[Workspace, str], tmp_path: Path) -> None:
    workspace, run = first
    link = Workspace(tmp_path / "link")
    link.root.symlink_to(workspace.root)
    rows = addresses(workspace)
    upload(open_store(link), run, tmp_path / "more.txt")
    assert addresses(workspace) == rows
    assert len(files(workspace)) == 2


def test_files_that_an_earlier_version_has_written_into_the_original_stay_known(
    first: tuple[Workspace, str], tmp_path: Path
) -> None:
    original, run = first
    copy = copied(original, tmp_path / "copy")
    (copy.artifacts / run / "artifacts" / "text.txt").unlink()
    (copy.artifacts / run / "artifacts").rmdir()
    client = open_store(copy)
    assert [each.path for each in client.list_artifacts(run)] == ["text.txt"]
    assert copy.artifacts.as_uri() in addresses(copy)


def test_other_addresses_and_other_stores_are_left(first: tuple[Workspace, str], tmp_path: Path) -> None:
    workspace, run = first
    own = f"{workspace.artifacts.as_uri()}/{run}/artifacts"
    for address in ("s3://bucket/.scalebook", "file:///a/.scalebook/artifacts2/x", "file:///etc", own):
        with closing(sqlite3.connect(workspace.database)) as connection, connection:
            connection.execute("UPDATE runs SET artifact_uri = ?", (address,))
        adopt_artifacts(workspace.tracking_uri())
        assert addresses(workspace)[-1] == address
    plain = tmp_path / "mlflow.db"
    shutil.copy(workspace.database, plain)
    content = plain.read_bytes()
    for address in (f"sqlite:///{plain}", "http://127.0.0.1:1", "postgresql://nobody@127.0.0.1:1/x", "", "sqlite://"):
        adopt_artifacts(address)
    assert plain.read_bytes() == content


def test_a_read_only_store_can_be_read(
    first: tuple[Workspace, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, _run = first
    copy = copied(original, tmp_path / "copy")
    rows, connect = addresses(copy), sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **_: connect(f"file:{path}?mode=ro", uri=True))
    adopt_artifacts(copy.tracking_uri())
    monkeypatch.undo()
    assert addresses(copy) == rows
    copy.database.write_bytes(b"no database" * 1000)
    adopt_artifacts(copy.tracking_uri())


def test_a_waiting_job_of_a_copy_is_recorded_in_the_copy(tmp_path: Path, prepared: Prepared) -> None:
    original = prepared.into(Workspace(tmp_path / "one"))
    job = submitted(original, config())
    copy = copied(original, tmp_path / "two")
    assert job.tracking_uri() == original.tracking_uri()
    assert JobFolder(copy.jobs / job.id).tracking_uri() == copy.tracking_uri()
    assert store_with("f" * 32, copy, original.tracking_uri()) == original.tracking_uri(), "named as this run's store"
    assert store_with(job.id, copy, "http://127.0.0.1:1") == "http://127.0.0.1:1"
    assert store_with(job.id, Workspace(tmp_path / "none"), original.tracking_uri()) == original.tracking_uri()


def addresses(workspace: Workspace) -> list[str]:
    with closing(sqlite3.connect(workspace.database)) as connection:
        rows = connection.execute(
            "SELECT artifact_location FROM experiments UNION ALL SELECT artifact_uri FROM runs"
        ).fetchall()
    return [row[0] for row in rows]
