"""What does not go to other machines is said before the start."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.experiments import data_paths
from scalebook.training.experiments.data_paths import staying
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.validation import require, validate
from tests.training.runs import config


def naming(root: object, **trainer: Any) -> dict[str, Any]:
    made = config("auto", **trainer)
    return {**made, "data": {"class_path": "Elsewhere.Own", "init_args": {"root": root, "mode": "train"}}}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pictures" / "train").mkdir(parents=True)
    (tmp_path / "Elsewhere.Own").mkdir()
    (tmp_path / "large.bin").write_bytes(bytes(2**20))
    (tmp_path / "small.csv").write_text("1")
    monkeypatch.setattr(data_paths, "LARGEST", 2**20 - 1)
    return tmp_path


def test_folders_and_large_files_stay_and_are_named_by_key(root: Path) -> None:
    found = staying(root, naming(["pictures/train", "large.bin", "small.csv", "train"]))
    assert [(one.key, one.said, one.what) for one in found] == [
        ("data.init_args.root.0", "pictures/train", "a folder"),
        ("data.init_args.root.1", "large.bin", "a file of 1 MiB"),
    ]
    assert found[0].path == str((root / "pictures" / "train").resolve())


@pytest.mark.parametrize("said", ["", "..", ".", "../x", "small.csv", "missing", None, 7, "a\0b"])
def test_nothing_else_does(root: Path, said: object) -> None:
    assert staying(root, naming(said)) == []


def test_where_a_run_writes_is_no_data(root: Path) -> None:
    assert staying(root, naming("missing", default_root_dir="pictures")) == []


def test_what_lies_behind_a_link_is_asked_for_where_it_lies(root: Path) -> None:
    (root / "link").symlink_to(root / "pictures")
    assert [one.path for one in staying(root, naming("link"))] == [str((root / "pictures").resolve())]


def test_it_is_a_warning_where_jobs_run_on_a_cluster_alone(root: Path, description: Description) -> None:
    asked = {**config("auto"), "model": {**config("auto")["model"]}}
    asked["data"] = {**asked["data"], "init_args": {**asked["data"].get("init_args", {}), "batch_size": "pictures"}}

    def told(clustered: bool, typed: bool = False) -> list[str]:
        about = replace(description, folder=str(root), clustered=clustered)
        return [str(one) for one in validate(Experiment.read(asked, about), typed=typed) if one.severity == "warning"]

    (said,) = told(clustered=True)
    assert said.startswith("data.init_args.batch_size: is pictures (a folder), which is not copied to other nodes")
    assert f"Copy it to {root.resolve() / 'pictures'} on each node that may run the job" in said
    assert told(clustered=False) == told(clustered=True, typed=True) == []


def test_it_keeps_nobody_from_starting(root: Path, description: Description) -> None:
    asked = config("auto")
    (root / "Digits").mkdir()
    require(Experiment.read(asked, replace(description, folder=str(root), clustered=True)))
