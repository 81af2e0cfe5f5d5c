from pathlib import Path

from scalebook.app.runs.services import push_record
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
