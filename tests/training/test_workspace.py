from pathlib import Path

import pytest

from training.spec.errors import ConfigError
from training.workspace import Workspace


def test_the_nearest_folder_upwards_that_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCALEBOOK_WORKSPACE", raising=False)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert Workspace.find(deep).root == deep
    (deep / "notebooks").mkdir()
    assert Workspace.find(deep).root == deep / "notebooks"
    (tmp_path / "a" / "scalebook.toml").touch()
    assert Workspace.find(deep).root == tmp_path / "a"
    Workspace(deep).create()
    assert Workspace.find(deep).root == deep
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(tmp_path))
    assert Workspace.find(deep).root == tmp_path


def test_where_runs_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = Workspace(tmp_path)
    assert workspace.tracking_uri() == f"sqlite:///{tmp_path}/.scalebook/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert workspace.tracking_uri() == "http://127.0.0.1:5000"
    assert not workspace.hidden.exists()


def test_notebooks_are_the_markdown_files_of_the_folder(tmp_path: Path) -> None:
    for name in ("b.md", "a.md", ".c.md", "d.txt", "e/f.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in Workspace(tmp_path).notebooks()] == ["a.md", "b.md"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modules = [", "scalebook.toml: is not TOML"),
        ("module = []", "scalebook.toml: module: is no setting. Known settings: modules."),
        ("modules = 'x'", "scalebook.toml: modules: must be a list of names"),
        ("modules = [1]", "scalebook.toml: modules: must be a list of names"),
    ],
)
def test_a_mistake_in_the_settings_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "scalebook.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        _ = Workspace(tmp_path).settings
    assert str(caught.value).startswith(message)


def test_settings_and_their_default(tmp_path: Path) -> None:
    assert Workspace(tmp_path).settings.modules == ()
    (tmp_path / "scalebook.toml").write_text('modules = ["a.b", "c"]', encoding="utf-8")
    assert Workspace(tmp_path).settings.modules == ("a.b", "c")
