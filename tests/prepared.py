"""What takes seconds to make and is the same for every test: made once in a session.

Where `SCALEBOOK_PREPARED` names a folder, once for all who are told of it: the forks of a session (`tests/forks.py`);
and in `make test`, which empties it first, two sessions beside each other.
"""

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue

SESSION = os.getpid()
"""Pid of the process that has collected the tests, as its forks have it too. It lives as long as any of them."""


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
        """Put the store alone there."""
        workspace.create()
        shutil.copy(self.store, workspace.database)

    def describe(self, workspace: Workspace) -> None:
        """Put the description alone there."""
        shutil.copy(self.description, workspace.cache / f"describe-{catalogue.content_hash(workspace)}.json")


def prepare(factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(once(factory, "store.db", _store), prepare_description(factory))


def prepare_description(factory: pytest.TempPathFactory) -> Path:
    """The description's file. Before the forks begin also for the sake of what jsonargparse keeps of the first one of a
    process: 1.4 CPU-s, and 0.5 for each that follows, also in a fork."""
    return once(factory, "description.json", _description)


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The file `name` as `make` has written it, one for all who share it; who is not first waits."""
    told = os.environ.get("SCALEBOOK_PREPARED")
    shared = Path(told) if told else factory.getbasetemp()
    shared.mkdir(parents=True, exist_ok=True)
    path = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            beside = shared / f"{name}.unfinished"
            make(beside)
            beside.rename(path)
    return path


def _store(path: Path) -> None:
    from scalebook.training.tracking.run_start import open_store  # with MLflow

    workspace = Workspace(path.with_name("store-of"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        open_store(workspace)
    whole(workspace.database, path)


def whole(database: Path, path: Path) -> None:
    """Copy a store, with what is in its log alone."""
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(database, path)


def _description(path: Path) -> None:
    from scalebook.training.cli.describe import describe  # with torch and Lightning

    path.write_text(describe(Workspace(path.with_name("described"))).to_json(), encoding="utf-8")
    path.chmod(0o600)  # as a process of ours writes it
