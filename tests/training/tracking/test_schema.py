"""Databases of another MLflow's version: said in one line, and left as they are."""

import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.main import main
from scalebook.training.cli.runner import run_job
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs.job_requests import all_jobs, submit
from scalebook.training.supervisor import lost_jobs as ending
from scalebook.training.tracking.run_reader import RunReader
from scalebook.training.tracking.run_start import open_store
from scalebook.training.tracking.schema import require_known
from tests.training.runs import config

OLDER, UNKNOWN = "e1f2a3b4c5d6", "ffffffffffff"
pytestmark = pytest.mark.usefixtures("_anew")


@pytest.fixture
def _anew() -> None:
    """Clients of stores that other tests have opened at the same place."""
    from scalebook.training.tracking.run_start import _client

    _client.cache_clear()


def of_version(workspace: Workspace, version: str | None) -> str:
    """Let the store say that it is of this version; its digest."""
    with closing(sqlite3.connect(workspace.database)) as connection:
        connection.execute("DELETE FROM alembic_version")
        if version is not None:
            connection.execute("INSERT INTO alembic_version VALUES (?)", [version])
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return digest(workspace)


def digest(workspace: Workspace) -> str:
    return sha256(workspace.database.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (OLDER, "was written by an older MLflow than .* e1f2a3b4c5d6 instead of .* run: mlflow db upgrade 'sqlite:"),
        (None, "was written by an older MLflow than .* one of the first instead of .* mlflow db upgrade 'sqlite:"),
        (UNKNOWN, "was written by a newer MLflow than .* know database version f{12}.* pip install --upgrade mlflow"),
    ],
    ids=["older", "first", "newer"],
)  # fmt: skip
def test_whoever_opens_it_says_so_and_changes_nothing(workspace: Workspace, version: str | None, said: str) -> None:
    before = of_version(workspace, version)
    for asked in (lambda: open_store(workspace), lambda: RunReader(workspace.tracking_uri()).runs()):
        with pytest.raises(ConfigError, match=said):
            asked()
    assert digest(workspace) == before


@pytest.mark.thorough
def test_a_database_that_an_older_mlflow_has_made_is_used_after_its_upgrade(tmp_path: Path) -> None:
    """A real one: MLflow's migrations as far as they had come then."""
    from alembic import command
    from mlflow.store.db import utils as untyped
    from mlflow.store.tracking.dbmodels.initial_models import Base
    from sqlalchemy import create_engine

    address = f"sqlite:///{tmp_path / 'x.db'}"
    utils: Any = untyped
    engine = create_engine(address)
    Base.metadata.create_all(engine)
    with pytest.raises(ConfigError, match="the database version is one of the first"):
        require_known(address)
    command.upgrade(utils._get_alembic_config(address), "f5a4f2784254")
    before = sha256((tmp_path / "x.db").read_bytes()).hexdigest()
    with pytest.raises(ConfigError, match="the database version is f5a4f2784254"):
        RunReader(address).runs()
    assert sha256((tmp_path / "x.db").read_bytes()).hexdigest() == before
    utils._upgrade_db(engine)  # what `mlflow db upgrade` calls
    engine.dispose()
    assert RunReader(address).runs() == []


@pytest.mark.parametrize(
    "address", ["http://localhost:1", "file:///nowhere", "sqlite:///{}/new.db", "sqlite:///{}/no.db"]
)
def test_other_stores_are_left_to_mlflow(address: str, tmp_path: Path) -> None:
    (tmp_path / "no.db").write_bytes(b"no database")
    require_known(address.format(tmp_path))
    assert not (tmp_path / "new.db").exists()


def test_a_command_ends_with_one_line_and_code_2(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.yaml").write_text(yaml.dump(config()), encoding="utf-8")
    before = of_version(workspace, OLDER)
    assert main(["fit", "-c", str(tmp_path / "x.yaml")]) == 2
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("scalebook:")]
    assert line.startswith(f"scalebook: error: sqlite:///{workspace.database}: was written by an older MLflow than ")
    assert digest(workspace) == before
    assert all_jobs(workspace) == []


def test_a_job_that_waited_meanwhile_fails_by_name(
    workspace: Workspace, description: Description, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what records its end says it in a line, and keeps the mark for when the database is upgraded."""
    (job,) = submit(workspace, Experiment.read(config(), description), seeds=[1], inline=True)
    before = of_version(workspace, OLDER)
    assert run_job(job.path) == 2
    result = job.result()
    assert result is not None
    assert (result.status, result.failure) == ("failed", "configuration")
    assert "mlflow db upgrade" in result.cause
    capsys.readouterr()
    job.unrecorded.touch()
    assert ending.main([str(job.unrecorded)]) == 1
    said = capsys.readouterr().err
    assert "was written by an older MLflow" in said
    assert "Traceback" not in said
    assert job.unrecorded.exists()
    assert digest(workspace) == before
