from pathlib import Path

import pytest

from scalebook.app.runs.services import push_record
from scalebook.app.runs.services.push_record import Pushes, PushRecord
from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunReader
from scalebook.training.workspace import Workspace
from tests.app.recorded import record, write_pushes
from tests.prepared import Prepared


def test_the_same_from_the_folder_and_from_the_store(tmp_path: Path, prepared: Prepared) -> None:
    workspace = prepared.into(Workspace(tmp_path))
    job = record(workspace)
    found = push_record.in_folder(job.path)
    assert found is not None
    assert found.counts == [[60, 120, 0, 0, 30], [0, 180, 0, 0, 30]]
    assert push_record.in_store(RunReader(workspace.tracking_uri()), job.id) == found


def test_a_run_without_one_has_none(tmp_path: Path, prepared: Prepared) -> None:
    job = record(prepared.into(Workspace(tmp_path)), state="waiting")
    assert push_record.in_folder(job.path) is None
    assert push_record.in_store(RunReader(Workspace(tmp_path).tracking_uri()), job.id) is None


def test_a_record_of_staleness_alone_is_read_too(tmp_path: Path) -> None:
    write_pushes(tmp_path, 1, 2)
    (tmp_path / names.PUSHES_JSON).unlink()
    found = push_record.in_folder(tmp_path)
    assert found is not None
    assert (len(found.counts), found.shares(), found.by_worker(), found.parts) == (2, {}, [], 0)


def test_shares_are_of_one_worker_or_of_all() -> None:
    seconds = [
        {"compute": 3.0, "wait": 1.0, "communicate": 0.0, "data": 0.0, "updates": 9.0},
        {"compute": 1.0, "wait": 3.0, "communicate": 0.0, "data": 0.0, "updates": 9.0},
    ]
    found = PushRecord([], seconds)
    assert found.shares() == {"compute": 0.5, "wait": 0.5, "communicate": 0.0, "data": 0.0}
    assert found.shares(1)["wait"] == 0.75
    assert found.shares(2) == {}


def test_a_gradient_counts_once_however_many_shards_it_has() -> None:
    """Two optimizers, the first with two shards; ages are weighted by what was applied."""
    shards = [
        Pushes(0, 0, 0, 10, 2, 0, 0.1, 3.0),
        Pushes(0, 0, 1, 10, 0, 0, 0.1, 4.0),
        Pushes(0, 1, 0, 20, 1, 1, 0.4, 12.0),
        Pushes(1, 0, 0, 0, 0, 0, None, None),
    ]
    first, second = PushRecord([], [], shards).by_worker()
    assert (first.applied, first.dropped, first.duplicates, first.drift) == (30, 3, 1, 13.0)
    assert first.age_s == pytest.approx(0.25)
    assert (second.worker, second.applied, second.age_s, second.drift) == (1, 0, None, None)
    assert PushRecord([], [], shards).parts == 3


def test_the_mean_staleness_of_a_worker() -> None:
    record = PushRecord([[1, 2, 1], [0, 0, 0]])
    assert (record.mean_staleness(0), record.mean_staleness(1)) == (1.0, None)
