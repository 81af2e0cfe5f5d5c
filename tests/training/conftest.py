"""A description and an MLflow store made once; a workspace that has both."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from training.spec import catalogue
from training.spec.description import Description
from training.tracking.starting import open_store
from training.workspace import Workspace


@pytest.fixture(scope="session")
def description(tmp_path_factory: pytest.TempPathFactory) -> Description:
    """Of a workspace without modules of a user's."""
    from training.describe import describe

    return describe(Workspace(tmp_path_factory.mktemp("described")))


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database with its tables and no run; making one takes some 3 s, copying it none."""
    workspace = Workspace(tmp_path_factory.mktemp("store"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        open_store(workspace)
    with closing(sqlite3.connect(workspace.database)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return workspace.database


@pytest.fixture
def workspace(
    tmp_path: Path, empty_store: Path, description: Description, monkeypatch: pytest.MonkeyPatch
) -> Workspace:
    """Empty, found by every command, with the store and the description in place."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = Workspace(tmp_path).create()
    shutil.copy(empty_store, made.database)
    kept = made.cache / f"describe-{catalogue.content_hash(made)}.json"
    kept.write_text(description.to_json(), encoding="utf-8")
    return made


@pytest.fixture
def one_thread() -> Iterator[None]:
    """A pool of torch's threads does not survive the forks of DDP and AsyncPS."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
