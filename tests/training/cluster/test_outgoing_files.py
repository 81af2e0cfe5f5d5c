import json
from pathlib import Path

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.cluster.cluster_spool import ClusterSpool, JobOrder
from scalebook.training.cluster.outgoing_files import digest_of, parcel
from scalebook.training.experiments import data_paths
from scalebook.training.experiments.data_paths import data_of
from scalebook.training.jobs.begin_request import folder_of, part_names
from scalebook.training.jobs.job_environment import keep_environment
from scalebook.training.jobs.job_folder import JobFolder
from tests.training.benches import Bench


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace, beside which lies something else."""
    made = tmp_path / "notebooks"
    for name in ("train.csv", "data/held out.csv", ".scalebook/secret", "../outside.csv"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(name)
    (made / "link.csv").symlink_to(tmp_path / "outside.csv")
    return made


def test_files_that_a_config_names_from_its_folder_travel(root: Path) -> None:
    config = {"data": {"init_args": {"files": ["train.csv", {"test": "data/held out.csv"}], "again": "train.csv"}}}
    assert data_of(root, config) == [root / "data" / "held out.csv", root / "train.csv"]


@pytest.mark.parametrize(
    "said",
    ["", "data", "missing.csv", "../outside.csv", ".scalebook/secret", "link.csv", "a\0b", "x" * 5000, 7, None, True],
)
def test_nothing_else_does(root: Path, said: object) -> None:
    assert data_of(root, {"data": said, "more": [str(root / "train.csv")]}) == []


def test_a_file_that_is_too_large_does_not(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_paths, "LARGEST", 9)
    assert data_of(root, ["train.csv"]) == [root / "train.csv"]
    monkeypatch.setattr(data_paths, "LARGEST", 8)
    assert data_of(root, ["train.csv"]) == []


def test_a_job_s_data_go_out_by_their_content_and_another_state_has_another_folder(bench: Bench) -> None:
    data = bench.workspace.root / "train.csv"
    data.write_text("one")
    ClusterSpool(bench.workspace).create()
    job = bench.job(data="train.csv")
    assert "train.csv" in json.loads(job.config.read_text()).values()
    before, paths = parcel(bench.workspace, job, JobOrder(job.id, "b", [0], []), None)
    assert paths[before.code["train.csv"]] == data
    data.write_text("two")
    after, _ = parcel(bench.workspace, job, JobOrder(job.id, "b", [0], []), None)
    assert after.code["train.csv"] == digest_of(data) != before.code["train.csv"]
    assert after.code_hash != before.code_hash


def test_what_stays_is_named_and_tells_states_of_code_apart(bench: Bench) -> None:
    ClusterSpool(bench.workspace).create()
    job = bench.job(data={"root": "pictures"})
    before, _ = parcel(bench.workspace, job, JobOrder(job.id, "b", [0], []), None)
    (bench.workspace.root / "pictures").mkdir()
    after, _ = parcel(bench.workspace, job, JobOrder(job.id, "b", [0], []), None)
    assert (before.stays, after.stays) == ({}, {"pictures": str((bench.workspace.root / "pictures").resolve())})
    assert after.code_hash != before.code_hash


def test_other_nodes_get_the_variables_that_the_settings_name_and_no_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = bench.workspace.root / "scalebook.toml"
    settings.write_text('[cluster]\nenvironment = ["ROWS", "MISSING", "MASTER_ADDR"]\n', encoding="utf-8")
    workspace = Workspace(bench.workspace.root)
    ClusterSpool(workspace).create()
    job = bench.job()
    with monkeypatch.context() as shell:
        for name, value in (("ROWS", "64"), ("SECRET", "hunter2"), ("MASTER_ADDR", "10.0.0.1")):
            shell.setenv(name, value)
        keep_environment(job.path, job.id)
    packed, paths = parcel(workspace, job, JobOrder(job.id, "b", [0], []), None)
    assert packed.environment == {"ROWS": "64"}
    assert not any(b"hunter2" in path.read_bytes() for path in paths.values())
    (part,) = part_names(job.id, ["a", "b"])
    other = JobFolder(folder_of(workspace.hidden, part))
    other.path.mkdir(parents=True)
    other.config.write_bytes(job.config.read_bytes())
    packed, _ = parcel(workspace, other, JobOrder(part, "b", [0], []), None)
    assert packed.environment == {"ROWS": "64"}
