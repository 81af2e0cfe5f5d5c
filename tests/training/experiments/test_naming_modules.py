"""Modules named in scalebook.toml, and the template of a first one."""

import json
from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.trust import trust, trusted
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.experiments.found_modules import name_modules, write_template
from scalebook.training.tracking.run_reader import RunReader
from tests.shared_files import Prepared
from tests.training.describing import forked


def named(root: Path) -> tuple[str, ...]:
    return Workspace(root).settings.modules


@pytest.mark.parametrize(
    "before",
    [
        "",
        '# mine\n[notify]\ncommand = ["notify-send"]\n',
        "modules = []  # none yet\n",
        'modules = [\n  "old",  # the first\n]\n\n[cluster]\naddress = "auto"\n',
    ],
)
def test_a_module_is_added_and_every_other_line_stays(tmp_path: Path, before: str) -> None:
    (tmp_path / SETTINGS).write_text(before, encoding="utf-8")
    old = named(tmp_path)
    name_modules(Workspace(tmp_path), "mine.models")
    name_modules(Workspace(tmp_path), "mine.models")
    assert named(tmp_path) == ("mine.models", *old)
    after = (tmp_path / SETTINGS).read_text(encoding="utf-8")
    assert all(line in after for line in before.splitlines() if not line.startswith("modules"))
    assert "# none yet" in after or "# none yet" not in before
    assert [path.name for path in tmp_path.iterdir()] == [SETTINGS]


def test_what_cannot_be_extended_is_refused_and_left(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = 'note = "x"\n'
    (tmp_path / SETTINGS).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="is not a setting"):
        name_modules(Workspace(tmp_path), "mine")
    assert (tmp_path / SETTINGS).read_text(encoding="utf-8") == text
    quoted = '"modules" = ["old"]\n'
    (tmp_path / SETTINGS).write_text(quoted, encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be edited automatically to add mine"):
        name_modules(Workspace(tmp_path), "mine")
    assert (tmp_path / SETTINGS).read_text(encoding="utf-8") == quoted
    outside = tmp_path_factory.mktemp("outside") / "settings"
    outside.write_text("", encoding="utf-8")
    (tmp_path / SETTINGS).unlink()
    (tmp_path / SETTINGS).symlink_to(outside)
    with pytest.raises(ConfigError, match="is a link"):
        name_modules(Workspace(tmp_path), "mine")
    assert outside.read_text(encoding="utf-8") == ""


def test_trust_that_was_given_before_is_not_of_the_new_module(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    trust(workspace)
    write_template(workspace, "my_model")
    assert not trusted(Workspace(tmp_path))


@pytest.mark.parametrize("name", ["my-model", "1st", "random", "torch", "", "../mine"])
def test_a_template_needs_a_name_that_can_be_imported(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="Name of the file"):
        write_template(Workspace(tmp_path), name)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="exists already"):
        write_template(Workspace(tmp_path), "my_model")
    assert (tmp_path / "my_model.py").read_text(encoding="utf-8") == "mine"


@pytest.mark.usefixtures("forked_descriptions")
def test_the_template_is_described_and_trains(
    tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path)
    prepared.open(workspace)
    write_template(workspace, "my_model")
    done = forked("describe", "--workspace", str(tmp_path), "--trust")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["problems"] == []
    (model,) = [one for one in said["models"] if one["source"] == "user"]
    assert model["class_path"] == "my_model.MyModel"
    assert [field["name"] for field in model["fields"]] == ["width", "lr"]
    assert [one["class_path"] for one in said["data"] if one["source"] == "user"] == ["my_model.MyData"]
    config = tmp_path / "x.yaml"
    config.write_text(
        "seed_everything: 1\ntrainer: {max_epochs: 4}\nmodel: {class_path: my_model.MyModel}\n"
        "data: {class_path: my_model.MyData}\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(tmp_path))
    done = forked("fit", "-c", str(config))
    assert done.returncode == 0, done.stderr
    (run,) = RunReader(workspace.tracking_uri()).listed(1)
    curves = {
        curve.metric: curve.values
        for curve in RunReader(workspace.tracking_uri()).curves(run.id, ["val_acc", "val_loss"])
    }
    assert curves["val_acc"][-1] > 0.8
    assert curves["val_loss"][-1] < curves["val_loss"][0]
