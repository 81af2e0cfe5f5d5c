"""Links in a folder of notebooks lead out of it on no page, unless the person trusts the folder."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from scalebook.app.one_run.data import files, found_in
from scalebook.app.runs import data as runs
from scalebook.app.shared import notebooks
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import records
from scalebook.training.base.files.safe_reading import read_end
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs import job_requests
from scalebook.training.notebook import history, store
from scalebook.training.tracking.run_reader import RunReader
from scalebook.training.tracking.run_start import open_store
from tests.app.pages.conftest import Open, codes, words
from tests.app.recorded import record

SECRET = "of-nobody-else"

pytestmark = pytest.mark.long


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the person's own, with a file that is nobody else's."""
    made = tmp_path_factory.mktemp("outside")
    (made / "secret.md").write_text(f"# {SECRET}\n\n{SECRET}\n", encoding="utf-8")
    return made


def test_a_notebook_that_is_a_link_is_named_and_not_shown(
    open_page: Open, workspace: Workspace, outside: Path, tmp_path: Path
) -> None:
    (tmp_path / "linked.md").symlink_to(outside / "secret.md")
    (tmp_path / "inner.md").symlink_to("first-steps.md")
    app = open_page(notebook="linked")
    assert "linked.md: is a link that leads out of the folder. Copy the file into the folder" in words(app)
    assert SECRET not in words(app) + "".join(codes(app))
    labels = {choice.name: choice.label for choice in notebooks.choices(workspace)}
    assert labels == {
        "linked": "⚠ linked",
        "inner": "First steps (inner.md)",
        "first-steps": "First steps (first-steps.md)",
    }
    with pytest.raises(ConfigError, match="is a link that leads out of the folder"):
        notebooks.read(tmp_path / "linked.md")
    assert store.read(tmp_path / "linked.md").notebook.title == SECRET, "named on a command line it is followed"
    trust(workspace)
    assert SECRET in words(open_page(notebook="linked"))


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["log.txt", "config.yaml", "curve.jsonl", "pushes.json", "usage.jsonl", "stop"])
def test_nor_is_a_file_of_a_run(open_page: Open, workspace: Workspace, outside: Path, name: str) -> None:
    job = record(workspace)
    (job.path / name).unlink(missing_ok=True)
    (job.path / name).symlink_to(outside / "secret.md")
    for tab in ("Config", "Log", "Files"):
        app = open_page("runs", run=job.id, files=tab)
        assert SECRET not in words(app) + "".join(codes(app)), tab
    if name in ("log.txt", "config.yaml"):
        assert f"({name} is not shown: a link, which Scalebook does not follow)" in "".join(
            "".join(codes(open_page("runs", run=job.id, files=tab))) for tab in ("Config", "Log")
        )
    assert SECRET.encode() not in read_end(job.path / name)
    assert found_in(job.log, SECRET)[0] == []


def test_nor_a_folder_of_a_run_or_its_artifacts(workspace: Workspace, outside: Path) -> None:
    job, reader = record(workspace), RunReader(workspace.tracking_uri())
    (outside / "x.ckpt").write_text(SECRET, encoding="utf-8")
    place = workspace.artifacts / job.id
    place.mkdir(exist_ok=True)
    shutil.rmtree(place / "artifacts", ignore_errors=True)
    (place / "artifacts").symlink_to(outside)
    assert files(reader, job.id, job) == []
    job.path.rename(outside / "job")
    job.path.symlink_to(outside / "job")
    assert runs.view(workspace, reader.run(job.id)).job is None
    assert job_requests.all_jobs(workspace) == []
    trust(workspace)
    assert {"secret.md", "x.ckpt"} <= {found.name for found in files(reader, job.id, job)}
    assert runs.view(workspace, reader.run(job.id)).job == job


def test_a_stranger_s_store_has_nothing_deleted_that_is_no_run(workspace: Workspace, outside: Path) -> None:
    """The ids of runs are paths there."""
    job = record(workspace)
    evil = os.path.relpath(outside, workspace.jobs)
    open_store(workspace)
    with closing(sqlite3.connect(workspace.database)) as connection, connection:
        for table in ("runs", "tags", "metrics", "latest_metrics", "params"):
            connection.execute(f"UPDATE {table} SET run_uuid = ?", (evil,))
    reader = RunReader(workspace.tracking_uri())
    (listed,) = reader.listed(10)
    assert (listed.id, runs.view(workspace, listed).job) == (evil, None)
    runs.delete_runs(workspace, reader, [evil, "..", ".", ""])
    assert (outside / "secret.md").exists()
    assert (job.path.exists(), workspace.hidden.exists()) == (True, True)


def test_states_of_a_notebook_are_neither_read_from_elsewhere_nor_written_there(
    workspace: Workspace, outside: Path, tmp_path: Path
) -> None:
    page = tmp_path / "first-steps.md"
    workspace.history.mkdir()
    shutil.copy(outside / "secret.md", outside / "000001.md")
    before = sorted(outside.iterdir())
    history.folder(page).symlink_to(outside)
    assert history.past_states(page) == []
    stored = store.read(page)
    with pytest.raises(ConfigError, match="is a link that leads out of the folder"):
        history.save_state(page, stored.notebook.text.encode("utf-8"))
    assert sorted(outside.iterdir()) == before
    history.folder(page).unlink()
    history.folder(page).mkdir()
    (history.folder(page) / "000001.md").symlink_to(outside / "000001.md")
    assert history.past_states(page) == []


@pytest.mark.parametrize(
    "make", [lambda path, to: path.symlink_to(to), lambda path, to: os.mkfifo(path)], ids=["link", "pipe"]
)
def test_a_record_that_is_a_link_or_a_pipe_is_broken(
    workspace: Workspace, outside: Path, make: Callable[[Path, Path], None]
) -> None:
    (outside / "progress.json").write_text(json.dumps({"secret": SECRET}), encoding="utf-8")
    job = record(workspace, state="running")
    (job.path / "progress.json").unlink(missing_ok=True)
    make(job.path / "progress.json", outside / "progress.json")
    assert job.progress() is None
    (error,) = job.broken()
    assert str(error).startswith(f"{job.path / 'progress.json'}: is broken (")
    assert records.peek(job.path / "progress.json", dict[str, str]) is None
