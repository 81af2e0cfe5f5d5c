"""Files that take seconds to create and are the same for every test: created once in a session, for all its workers."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from filelock import FileLock

from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue


class Prepared(NamedTuple):
    """Files to copy: an MLflow database with its tables and no run (3 s), the description of a bare workspace (6 s)."""

    store: Path
    description: Path

    def into(self, workspace: Workspace) -> Workspace:
        """Put both where Scalebook looks for them; for a workspace without modules of a user's."""
        self.open(workspace)
        self.describe(workspace)
        return workspace

    def open(self, workspace: Workspace) -> None:
        """Put only the store there."""
        workspace.create()
        shutil.copy(self.store, workspace.database)

    def describe(self, workspace: Workspace) -> None:
        """Put only the description there."""
        shutil.copy(self.description, workspace.cache / f"describe-{catalogue.content_hash(workspace)}.json")


def prepare(factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(once(factory, "store.db", _store), once(factory, "description.json", _description))


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The file `name` as `make` has written it. The workers of pytest-xdist share it; all but the first wait for it."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    path = shared / name
    with FileLock(shared / f"{name}.lock"):
        if not path.exists():
            unfinished = shared / f"{name}.unfinished"
            make(unfinished)
            unfinished.rename(path)
    return path


def _store(path: Path) -> None:
    from scalebook.training.tracking.run_start import open_store  # with MLflow

    workspace = Workspace(path.with_name("store-of"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        open_store(workspace)
    whole(workspace.database, path)


def whole(database: Path, path: Path) -> None:
    """Copy a store, including what only its log contains."""
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(database, path)


def _description(path: Path) -> None:
    from scalebook.training.cli.describe import describe  # with torch and Lightning

    path.write_text(describe(Workspace(path.with_name("described"))).to_json(), encoding="utf-8")
    path.chmod(0o600)  # as a process of ours writes it
