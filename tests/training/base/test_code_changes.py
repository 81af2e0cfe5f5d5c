"""Which files of a person's own a config uses, and whether they have changed: read, never imported."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base import code_changes
from scalebook.training.base.code_changes import CodeNow, file_list, recorded_files, used
from scalebook.training.base.workspace import Workspace

BOMB = "raise SystemExit('imported')\n"


def lab(root: Path, **files: str) -> Workspace:
    """A folder with these files; `a__b` is `a/b.py`."""
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Workspace(root)


def names(workspace: Workspace, *said: str) -> list[str]:
    config: dict[str, Any] = {"model": {"class_path": said[0]}, "more": [{"deep": word} for word in said[1:]]}
    return [file.name for file in used(workspace, config).files]


def test_what_a_config_names_and_what_that_imports(tmp_path: Path) -> None:
    workspace = lab(
        tmp_path,
        models=f"import helpers, os.path, torch\nfrom layers.blocks import Block as B\n{BOMB}",
        helpers="def late():\n    from deeper import x\n",
        deeper="",
        layers__blocks="from . import norms\nfrom ..layers import activations\n",
        layers__norms="",
        layers__activations="",
        layers__unused="",
        another="",
    )
    assert names(workspace, "models.Net", "0.1", "torch.optim.SGD", "not a.name", "data/x.csv") == [
        "models.py", "helpers.py", "layers/blocks.py", "deeper.py", "layers/norms.py", "layers/activations.py",
    ]  # fmt: skip


def test_imports_by_a_function_whose_name_is_written_out(tmp_path: Path) -> None:
    """One that the code makes is not known without running it."""
    workspace = lab(
        tmp_path,
        lab__models="""
            import importlib
            def net(name):
                importlib.import_module("lab.late")
                importlib.import_module(".near", __package__)
                __import__("beside")
                importlib.import_module(f"lab.{name}")
                importlib.import_module(name)
        """.replace("\n            ", "\n"),
        lab__late="",
        lab__near="",
        lab__made="",
        beside="",
    )
    assert names(workspace, "lab.models.Net") == [
        "lab/models.py", "lab/late.py", "lab/near.py", "beside.py",
    ]  # fmt: skip


def test_a_package_with_what_stands_around_it(tmp_path: Path) -> None:
    workspace = lab(tmp_path, mein_paket__netze__größe="", mein_paket__daten="import mein_paket.netze.größe")
    for package in ("mein_paket", "mein_paket/netze"):
        (tmp_path / package / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "mein_paket/__init__.py").write_text("from .daten import Punkte\n", encoding="utf-8")
    assert names(workspace, "mein_paket.Punkte") == [
        "mein_paket/__init__.py", "mein_paket/daten.py", "mein_paket/netze/__init__.py", "mein_paket/netze/größe.py",
    ]  # fmt: skip


def test_what_is_installed_or_of_python_is_nobodys_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed one is what Python imports, the folder being last on its path."""
    workspace = lab(tmp_path, yaml="", json="", scalebook="", own="import yaml, json, scalebook")
    assert names(workspace, "own.Net") == ["own.py"]
    elsewhere = tmp_path.with_name("elsewhere")
    lab(elsewhere, from_a_folder="", beside="")
    monkeypatch.syspath_prepend(str(elsewhere))
    assert names(workspace, "from_a_folder.Net") == []
    (tmp_path / "scalebook.toml").write_text('modules = ["from_a_folder"]', encoding="utf-8")
    assert names(Workspace(tmp_path), "from_a_folder.Net") == ["from_a_folder.py"]


def test_links_out_of_the_folder_and_what_is_no_file_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    lab(outside, secret="x = 1", package__inner="")
    workspace = lab(tmp_path / "lab", models="import away, folder.inner, layers.pipe, inside", real="", layers__x="")
    (workspace.root / "away.py").symlink_to(outside / "secret.py")
    (workspace.root / "folder").symlink_to(outside / "package")
    (workspace.root / "inside.py").symlink_to("real.py")
    os.mkfifo(workspace.root / "layers/pipe.py")
    found = used(workspace, {"model": "models.Net"})
    assert ([file.name for file in found.files], found.left_out) == (["models.py", "inside.py"], 3)
    assert '"...": "3"' in found.record()


def test_it_ends_whatever_lies_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_changes, "MOST_FILES", 3)
    workspace = lab(
        tmp_path, models="import a, b, c, models\nimport huge, broken", a="import models", b="", c="", huge="",
        broken="def (:\n",
    )  # fmt: skip
    (tmp_path / "huge.py").write_bytes(b"#" * (code_changes.LARGEST + 1))
    found = used(workspace, {"model": "models.Net"})
    assert ([file.name for file in found.files], found.left_out) == (["models.py", "a.py", "b.py"], 3)
    monkeypatch.setattr(code_changes, "LONGEST_RECORD", 60)
    assert '"...": "4"' in found.record()
    assert list(recorded_files(found.record())) == ["models.py", "a.py"]


def test_a_changed_file_is_named_and_no_other_one_counts(tmp_path: Path) -> None:
    workspace = lab(tmp_path, models="import helpers", helpers="x = 1", another="")
    record = used(workspace, {"model": "models.Net"}).record()
    folder = str(workspace.root)
    assert CodeNow(folder).changed(record) == []
    lab(tmp_path, another="y = 2", new="")
    assert CodeNow(folder).changed(record) == []
    lab(tmp_path, helpers="x = 2")
    assert CodeNow(folder).changed(record) == ["helpers.py"]
    (tmp_path / "models.py").unlink()
    assert CodeNow(folder).changed(record) == ["models.py", "helpers.py"]
    lab(tmp_path, models="import helpers", helpers="x = 1")
    assert CodeNow(folder).changed(record) == [], "what was undone is the same again"
    assert CodeNow("").changed(record) == []
    assert CodeNow(folder).changed("") == [], "a run of an earlier version says nothing of it"
    assert "models" not in sys.modules


def test_a_record_of_a_stranger_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("x = 1", encoding="utf-8")
    workspace = lab(tmp_path / "lab", models="")
    for told in ("[]", "nonsense", '{"../secret.py": "1"}', '{"/etc/passwd.py": "1"}', "[" * 10_000):
        assert CodeNow(str(workspace.root)).changed(told) == []


def test_a_list_of_files_in_words() -> None:
    assert [file_list(files) for files in ([], ["a"], ["a", "b"], ["a", "b", "c", "d", "e"])] == [
        "", "a", "a and b", "a, b, c and 2 more",
    ]  # fmt: skip
