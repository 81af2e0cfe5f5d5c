"""Folders from strangers: what is imported and run before a person has said that they trust them, and after."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base import trust
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.trust import FOUND, JOB, may_run, sign, trusted, withdraw
from scalebook.training.base.user_modules import import_modules
from scalebook.training.base.workspace import Workspace, state_home
from scalebook.training.cli import notebook
from scalebook.training.cli.main import main
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests
from scalebook.training.jobs.waiting_jobs import waiting_reasons
from tests.training.runs import config, run

MINE = """
from pathlib import Path
Path(__file__).with_name("it ran").touch()
from lightning.pytorch import LightningModule

class Mine(LightningModule):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
"""
PAGE = """# Page

```yaml experiment=ours
config:
  trainer: {devices: 1, max_epochs: 1, accelerator: cpu}
  model: {class_path: MLPClassifier}
  data: {class_path: Digits}
```

```yaml experiment=theirs
config:
  trainer: {devices: 1, max_epochs: 1, accelerator: cpu}
  model: {class_path: a_module_of_mine.Mine}
  data: {class_path: Digits}
```
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """With a module of its own, which makes the file `it ran` when it is imported."""
    (tmp_path / "a_module_of_mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "scalebook.toml").write_text('modules = ["a_module_of_mine"]', encoding="utf-8")
    (tmp_path / "page.md").write_text(PAGE, encoding="utf-8")
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "a_module_of_mine", raising=False)
    return Workspace(tmp_path)


def ran(workspace: Workspace) -> bool:
    return (workspace.root / "it ran").exists()


@pytest.mark.usefixtures("forked_descriptions")
def test_checking_imports_nothing_and_says_why(folder: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert notebook.main(["check", str(folder.root / "page.md")]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1, told
    assert "theirs: model: unknown model 'a_module_of_mine.Mine'." in told
    assert "not imported, because this folder is not trusted (press Trust this folder, or use --trust)" in told
    assert not ran(folder)
    trust.resolve_trust(folder, granted=True)
    assert import_modules(folder)[1] == []
    assert ran(folder)


@pytest.mark.parametrize(
    "words",
    ["fit -c x.yaml", "validate -c x.yaml", "notebook run page.md --cell ours", "search run page.md",
     "search rates -c x.yaml", "search largest-batch -c x.yaml"],
)  # fmt: skip
def test_what_would_run_them_asks_first(
    words: str, folder: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is there to ask: one line that names the option and the module."""
    monkeypatch.chdir(folder.root)
    (folder.root / "x.yaml").write_text(yaml.dump(config()), encoding="utf-8")
    assert main(words.split()) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1, told
    assert f"a_module_of_mine ({folder.root / 'a_module_of_mine.py'})" in told
    assert "add --trust to the command once" in told
    assert not ran(folder)


@pytest.mark.parametrize(("answer", "settled"), [("yes\n", True), ("no\n", False), ("\n", False), ("", False)])
def test_a_person_at_a_terminal_is_asked(
    answer: str, settled: bool, folder: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return answer

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    if settled:
        trust.resolve_trust(folder, granted=False, runs=True)
    else:
        with pytest.raises(ConfigError, match="you do not trust"):
            trust.resolve_trust(folder, granted=False, runs=True)
    assert trusted(folder) is settled
    assert "wants to run its own Python code: a_module_of_mine (" in capsys.readouterr().err


def test_a_folder_without_modules_asks_nothing(tmp_path: Path) -> None:
    trust.resolve_trust(Workspace(tmp_path), granted=False, runs=True)
    assert not trusted(Workspace(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [".scalebook", ".scalebook/supervisor.log", ".scalebook/jobs"])
def test_records_do_not_lead_elsewhere(name: str, tmp_path: Path) -> None:
    """A log that is a link to `.bashrc` would be appended to."""
    workspace, victim = Workspace(tmp_path / "folder"), tmp_path / "victim"
    (tmp_path / "folder" / name).parent.mkdir(parents=True)
    (tmp_path / "folder" / name).symlink_to(victim)
    with pytest.raises(ConfigError, match=f"{name}: is a link to {victim}, in a folder that you do not trust"):
        trust.resolve_trust(workspace, granted=False)


def test_trust_is_kept_outside_for_this_user_alone(folder: Workspace) -> None:
    before = set((state_home() / "trusted").glob("*.json"))
    trust.trust(folder)
    assert trusted(folder)
    (kept,) = set((state_home() / "trusted").glob("*.json")) - before
    assert folder.root not in kept.parents
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    withdraw(folder)
    assert not trusted(folder)


def test_editing_a_trusted_module_asks_nothing_anew(folder: Workspace) -> None:
    """A person edits their model every minute; who is asked every minute reads nothing."""
    trust.trust(folder)
    (folder.root / "a_module_of_mine.py").write_text("x = 1", encoding="utf-8")
    assert trusted(folder)


@pytest.mark.parametrize(
    "change", ["another module", "another file", "another folder", "a copy", "moved away", "hidden folder replaced"]
)
def test_anything_else_does(change: str, folder: Workspace, tmp_path: Path) -> None:
    trust.trust(folder)
    workspace = Workspace(folder.root)
    beside = tmp_path.with_name(f"{tmp_path.name}-beside")
    if change == "another module":
        (folder.root / "scalebook.toml").write_text('modules = ["a_module_of_mine", "json"]', encoding="utf-8")
    elif change == "another file":
        (folder.root / "a_module_of_mine").mkdir()  # a package goes before a file
    elif change == "another folder":
        shutil.copytree(folder.root, beside)
        folder.root.rename(tmp_path.with_name(f"{tmp_path.name}-old"))
        beside.rename(folder.root)
    elif change in ("a copy", "moved away"):
        shutil.copytree(folder.root, beside)
        workspace = Workspace(beside)
    else:
        shutil.rmtree(folder.hidden)
        workspace.create()
    assert not trusted(workspace)


def test_a_mark_that_was_made_by_somebody_else_means_nothing(folder: Workspace) -> None:
    folder.create()
    (folder.hidden / "trusted").write_text("0" * 32, encoding="ascii")
    assert not trusted(folder)
    trust.trust(folder)
    assert (folder.hidden / "trusted").read_text() != "0" * 32


def test_modules_come_last_on_the_path(folder: Workspace) -> None:
    (folder.root / "colorsys.py").write_text("raise RuntimeError", encoding="utf-8")
    trust.trust(folder)
    sys.modules.pop("colorsys", None)
    found, problems = import_modules(folder)
    assert [one.__name__ for one in found] == ["a_module_of_mine"]
    assert problems == []
    assert sys.path[-1] == str(folder.root)
    import colorsys

    assert hasattr(colorsys, "rgb_to_hsv")


def planted(workspace: Workspace, given: dict[str, Any], description: Description) -> Any:
    """A waiting job as a stranger makes one: all but the signature."""
    (job,) = job_requests.submit(workspace, Experiment.read(given, description), seeds=[1], start=False)
    (job.path / "signature").unlink()
    return job


def test_a_job_that_was_found_waits(workspace: Workspace, description: Description) -> None:
    """Also where its signature is somebody else's, or of another config, or garbage."""
    job = planted(workspace, config(), description)
    assert not may_run(workspace, job.path, JOB)
    assert waiting_reasons(workspace) == {job.id: FOUND}
    for garbage in (b"", b"\xff\x00", b"0" * 64):
        (job.path / "signature").write_bytes(garbage)
        assert not may_run(workspace, job.path, JOB)
    sign(job.path, job.id, JOB)
    assert may_run(workspace, job.path, JOB)
    job.config.write_text("{}", encoding="utf-8")
    assert not may_run(workspace, job.path, JOB)
    trust.trust(workspace)
    assert may_run(workspace, job.path, JOB)


def test_a_signature_is_of_one_job_and_one_user(
    workspace: Workspace, description: Description, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (job,) = job_requests.submit(workspace, Experiment.read(config(), description), seeds=[1], start=False)
    assert may_run(workspace, job.path, JOB)
    again = shutil.copytree(job.path, workspace.jobs / ("0" * 32))
    assert not may_run(workspace, again, JOB)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody else"))
    assert not may_run(workspace, job.path, JOB)
    key = tmp_path / "somebody else" / "scalebook" / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_bytes()) == 32


def test_a_job_that_was_found_can_be_deleted(workspace: Workspace, description: Description) -> None:
    job = planted(workspace, config(), description)
    job_requests.delete(workspace, job)
    assert not job.path.exists()


def test_a_cache_in_the_folder_cannot_make_it_trusted(workspace: Workspace) -> None:
    (kept,) = workspace.cache.glob("describe-*.json")
    told = json.loads(kept.read_text(encoding="utf-8"))
    kept.write_text(json.dumps({**told, "trusted": True, "folder": "/"}), encoding="utf-8")
    found = describe(workspace)
    assert (found.trusted, found.folder) == (False, str(workspace.root))


def test_a_plain_run_needs_no_trust(workspace: Workspace) -> None:
    _, code, _ = run(workspace, config())
    assert code == 0
    assert not trusted(workspace)
    assert not (workspace.hidden / "trusted").exists()


def test_whoever_is_first_makes_the_key(tmp_path: Path) -> None:
    """Of four at once all use the same."""
    code = "import scalebook.training.base.trust as t; print(t._key().hex())"
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) for _ in range(4)
    ]
    assert len({one.communicate(timeout=60)[0] for one in started}) == 1
