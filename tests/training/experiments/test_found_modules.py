"""Models and data of a folder, found by reading."""

from pathlib import Path

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.found_modules import FoundModule, found, name_problem

MODEL = "import lightning\nopen(__file__ + '.ran', 'w')\nclass Net(lightning.LightningModule): pass\n"


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_classes_are_found_under_any_name_of_their_base_and_nothing_runs(tmp_path: Path) -> None:
    plain = write(tmp_path, "net.py", MODEL)
    text = (
        "import pytorch_lightning as pl\nfrom lightning import LightningDataModule\nfrom net import Net\n"
        "class Mine(Net): pass\nclass Own(pl.LightningModule): pass\n"
        "class Data(LightningDataModule): pass\nclass Other: pass\n"
    )
    package = write(tmp_path, "lab/models.py", text)
    write(tmp_path, "helper.py", "def double(x): return 2 * x\n")
    assert found(Workspace(tmp_path)) == [
        FoundModule("lab.models", package, ("Mine", "Own"), ("Data",)),
        FoundModule("net", plain, ("Net",)),
    ]
    assert not (tmp_path / "net.py.ran").exists()


def test_environments_hidden_folders_and_links_out_are_left_out(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = write(tmp_path_factory.mktemp("outside"), "net.py", MODEL)
    write(tmp_path, "env/pyvenv.cfg", "")
    for name in ("env/net.py", ".hidden/net.py", "lib/site-packages/net.py", "a/b/c/d/e/net.py"):
        write(tmp_path, name, MODEL)
    (tmp_path / "linked.py").symlink_to(outside)
    assert found(Workspace(tmp_path)) == []


@pytest.mark.parametrize(
    "text", ["import lightning\nclass (", "import lightning\n\0", "import lightning\n" + "(" * 5000]
)
def test_a_file_that_is_no_python_is_named_with_its_remedy(tmp_path: Path, text: str) -> None:
    write(tmp_path, "net.py", text)
    (module,) = found(Workspace(tmp_path))
    assert module.name == "net"
    assert "cannot be read as Python" in module.problem
    assert "Fix the file." in module.problem


def test_names_that_would_import_something_else_are_refused(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert "Python's standard library has a module called random" in name_problem(workspace, "random")
    assert "An installed package is called lightning" in name_problem(workspace, "lightning.mine")
    assert "cannot be imported" in name_problem(workspace, "my-model")
    assert name_problem(workspace, "of_nobody_else") == ""
    write(tmp_path, "random.py", MODEL)
    assert found(workspace)[0].problem == name_problem(workspace, "random")
