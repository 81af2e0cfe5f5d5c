from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scalebook.app.runs import records as run_records
from scalebook.app.runs.records import CachingReader, NotebookRuns
from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader, RunRecord
from scalebook.training.tracking.run_start import open_store
from tests.app.recorded import record, write_pushes
from tests.shared_files import Prepared


def test_curves_of_ended_runs_are_kept_and_those_of_living_ones_read_anew(tmp_path: Path, prepared: Prepared) -> None:
    workspace = prepared.into(Workspace(tmp_path))
    ended, living = record(workspace), record(workspace, state="running")
    reader = CachingReader(workspace.tracking_uri())
    assert {one.id for one in reader.runs()} == {ended.id, living.id}
    first = {job.id: reader.curve(job.id, names.TRAIN_LOSS) for job in (ended, living)}
    client = open_store(workspace)
    for name, value in ((names.TRAIN_LOSS, 1.0), (names.SAMPLES, 9e4), (names.SECONDS, 99.0)):
        client.log_metric(living.id, name, value, step=5000)
    assert reader.curve(ended.id, names.TRAIN_LOSS) is first[ended.id]
    assert reader.curve(living.id, names.TRAIN_LOSS).updates[-1] == 5000
    assert reader.run(ended.id).id == ended.id


def test_a_curve_read_while_the_run_lived_is_not_kept_for_good(tmp_path: Path, prepared: Prepared) -> None:
    workspace = prepared.into(Workspace(tmp_path))
    job = record(workspace, state="running")
    reader = CachingReader(workspace.tracking_uri())
    reader.run(job.id)
    before = reader.curve(job.id, names.TRAIN_LOSS)
    open_store(workspace).set_terminated(job.id, "FINISHED")
    reader.run(job.id)
    after = reader.curve(job.id, names.TRAIN_LOSS)
    assert after == before
    assert reader.curve(job.id, names.TRAIN_LOSS) is after


def test_the_cells_of_a_notebook_are_answered_by_one_reading(
    tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = prepared.into(Workspace(tmp_path))
    for cell, digit in (("a", "1"), ("b", "1"), ("a", "2")):
        record(workspace, cell=cell, config_hash=digit * 12)
    record(workspace, notebook="other.md")
    store = CachingReader(workspace.tracking_uri())
    asked: list[str] = []

    def counted(name: str) -> Callable[..., list[RunRecord]]:
        read = getattr(store, name)

        def counting(*args: Any, **keys: Any) -> list[RunRecord]:
            asked.append(f"{name} {keys['notebook']}")
            answer: list[RunRecord] = read(*args, **keys)
            return answer

        return counting

    questions: list[dict[str, Any]] = [{"cell": cell} for cell in "abc"]
    questions += [{"config_hash": "1" * 12}, {"cell": "a", "limit": 1}]
    plain = [store.runs(notebook="first-steps.md", **question) for question in questions]
    for name in ("runs", "listed"):
        monkeypatch.setattr(store, name, counted(name))
    once = NotebookRuns(store, "first-steps.md")
    answers = [once.runs(notebook="first-steps.md", **question) for question in questions]
    assert [[run.id for run in runs] for runs in answers] == [[run.id for run in runs] for runs in plain]
    assert [len(records) for records in plain] == [2, 1, 0, 2, 1]
    assert asked == ["listed first-steps.md"]
    assert [record.notebook for record in once.runs(notebook="other.md")] == ["other.md"]
    assert asked == ["listed first-steps.md", "runs other.md"]


def test_the_same_from_the_folder_and_from_the_store(tmp_path: Path, prepared: Prepared) -> None:
    workspace = prepared.into(Workspace(tmp_path))
    job = record(workspace)
    found = run_records.pushes_in_folder(job.path)
    assert found is not None
    assert found.counts == [[60, 120, 0, 0, 30], [0, 180, 0, 0, 30]]
    assert run_records.pushes_in_store(RunReader(workspace.tracking_uri()), job.id) == found


def test_a_run_without_one_has_none(tmp_path: Path, prepared: Prepared) -> None:
    job = record(prepared.into(Workspace(tmp_path)), state="waiting")
    assert run_records.pushes_in_folder(job.path) is None
    assert run_records.pushes_in_store(RunReader(Workspace(tmp_path).tracking_uri()), job.id) is None


def test_a_record_of_staleness_alone_is_read_too(tmp_path: Path) -> None:
    write_pushes(tmp_path, 1, 2)
    (tmp_path / names.PUSHES_JSON).unlink()
    found = run_records.pushes_in_folder(tmp_path)
    assert found is not None
    assert (len(found.counts), found.shares(), found.by_worker(), found.parts) == (2, {}, [], 0)
