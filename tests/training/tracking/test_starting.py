"""The store of a workspace, wherever that lies and whatever it is called."""

import os
from pathlib import Path

import pytest

from scalebook.training.tracking import names
from scalebook.training.tracking.starting import create_run, experiment_id, open_store
from scalebook.training.workspace import Workspace


def test_a_store_lies_in_its_workspace_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    name = "a?b per%20cent #[x] {y} 'q\" ö*"
    (tmp_path / name).mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    workspace = Workspace(tmp_path / name)
    client = open_store(workspace)
    run = create_run(client, experiment_id(client, workspace, "both ' and \""), "run", {"a": "b"}, {"c": 1})
    text = tmp_path / "text.txt"
    text.write_text("kept", encoding="utf-8")
    client.log_artifact(run, str(text))
    default = client.create_run("0").info.run_id  # MLflow's own experiment
    client.log_artifact(default, str(text))
    assert Path(client.download_artifacts(run, "text.txt")).read_text(encoding="utf-8") == "kept"
    assert sorted(os.listdir(tmp_path)) == sorted([name, "elsewhere", "text.txt"])
    assert os.listdir(tmp_path / "elsewhere") == []
    assert workspace.database.is_file()
    assert len(list(workspace.artifacts.rglob("text.txt"))) == 2


def test_mlflow_s_column_source_names_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would name the program that happened to make the run."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = Workspace(tmp_path)
    client = open_store(workspace)
    home = experiment_id(client, workspace, "lab")
    of_notebook = create_run(client, home, "one", {names.TAG_NOTEBOOK: "lab.md"}, {})
    by_hand = create_run(client, home, "two", {}, {})
    sources = [client.get_run(run).data.tags[names.TAG_SOURCE] for run in (of_notebook, by_hand)]
    assert sources == ["lab.md", "scalebook"]
