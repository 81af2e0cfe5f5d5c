import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.description import Description
from tests.shared_files import Prepared
from tests.training.benches import wait_for

pytestmark = pytest.mark.long

OWN = """
    from lightning.pytorch import LightningModule
    print("noise of an import")

    class Mine(LightningModule):
        '''A model of my own.

        Args:
            width: How wide.
        '''
        metrics = ("val/accuracy",)
        def __init__(self, width: int = 3) -> None:
            super().__init__()
        def configure_optimizers(self):
            return None
"""


@pytest.mark.usefixtures("forked_descriptions")
def test_made_once_by_a_process_of_its_own_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a module of the user's that works and one that does not, which becomes a problem."""
    (tmp_path / "mine.py").write_text(textwrap.dedent(OWN), encoding="utf-8")
    (tmp_path / "broken.py").write_text("raise RuntimeError('not today')", encoding="utf-8")
    (tmp_path / "scalebook.toml").write_text('modules = ["mine", "broken"]', encoding="utf-8")
    workspace = Workspace(tmp_path)
    trust(workspace)
    found = catalogue.describe(workspace)
    mine = found.find("models", "Mine")
    assert mine is not None
    assert (mine.class_path, mine.source, mine.summary) == ("mine.Mine", "user", "A model of my own.")
    assert (mine.own_optimizer, mine.metrics) == (True, ["val/accuracy"])
    assert [(one.name, one.type, one.default, one.help) for one in mine.fields] == [("width", "int", 3, "How wide.")]
    assert found.problems == ["broken: RuntimeError: not today"]

    monkeypatch.setattr(catalogue, "_run", lambda *_, **__: pytest.fail("made a second time"))
    assert catalogue.describe(workspace) == found


def test_the_content_changes_with_settings_and_sources(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    (tmp_path / "mine.py").write_text("x = 1", encoding="utf-8")
    bare = catalogue.content_hash(workspace)
    assert catalogue.content_hash(Workspace(tmp_path)) == bare
    (tmp_path / "scalebook.toml").write_text('modules = ["mine"]', encoding="utf-8")
    named = catalogue.content_hash(Workspace(tmp_path))
    os.utime(tmp_path / "mine.py", (1, 1))
    edited = catalogue.content_hash(Workspace(tmp_path))
    assert len({bare, named, edited}) == 3


def test_a_process_that_fails_is_an_error_in_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, "describe", stderr="Traceback\nImportError: no torch")

    monkeypatch.setattr(catalogue, "_run", fail)
    with pytest.raises(ConfigError, match="ImportError: no torch"):
        catalogue.describe(Workspace(tmp_path))


@pytest.mark.parametrize(("settings", "key"), [("", "describe"), ('modules = ["slow"]', "scalebook.toml")])
def test_a_process_that_takes_too_long_blames_only_modules_that_are_named(
    settings: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("describe", 120)

    (tmp_path / "scalebook.toml").write_text(settings, encoding="utf-8")
    trust(Workspace(tmp_path))
    monkeypatch.setattr(catalogue, "_run", late)
    with pytest.raises(ConfigError, match="took more than 120 s") as refused:
        catalogue.describe(Workspace(tmp_path))
    assert refused.value.problem.key == key


def test_of_several_that_need_it_one_makes_it_and_another_takes_over_when_that_one_dies(
    tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four processes; the first that makes it is killed while it does."""
    workspace, ledger = Workspace(tmp_path).create(), tmp_path / "ledger"
    content, me = prepared.description.read_text(encoding="utf-8"), os.getpid()

    def make(*_: object) -> str:
        with ledger.open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        if len(ledger.read_text(encoding="utf-8").splitlines()) == 1:
            time.sleep(60)
        return content

    monkeypatch.setattr(catalogue, "_run", make)
    pids = []
    for _ in range(4):
        if (pid := os.fork()) == 0:
            os._exit(0 if catalogue.describe(workspace).find("models", "PixelCNN") is not None else 1)
        pids.append(pid)
    try:
        first = int(wait_for(lambda: ledger.read_text("utf-8") if ledger.exists() else "", "the first to begin"))
        assert first in pids
        time.sleep(2 * catalogue.LOOK_S)  # the others wait meanwhile
        assert ledger.read_text(encoding="utf-8") == f"{first}\n"
        os.kill(first, signal.SIGKILL)
        ends = {pid: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids}
    finally:
        assert os.getpid() == me
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert sorted(ends.values()) == [-signal.SIGKILL, 0, 0, 0]
    assert ends[first] == -signal.SIGKILL
    assert len(ledger.read_text(encoding="utf-8").splitlines()) == 2


def test_whoever_waits_is_told_and_gives_up_only_when_nothing_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, seconds in {"DEADLINE_S": 0.5, "SAY_EVERY_S": 0.2, "LOOK_S": 0.05}.items():
        monkeypatch.setattr(catalogue, name, seconds)
    workspace, ended = Workspace(tmp_path), threading.Event()
    failed: list[ConfigError] = []

    def wait() -> None:
        try:
            catalogue.describe(workspace)
        except ConfigError as error:
            failed.append(error)
        ended.set()

    with catalogue._turn(workspace) as note_progress:
        waiter = threading.Thread(target=wait)
        waiter.start()
        for _ in range(30):
            note_progress()
            assert not ended.wait(0.05), "the holder moves"
        assert ended.wait(60)
        waiter.join()
    (error,) = failed
    assert f"is waiting for process {os.getpid()}, which has made no progress for" in str(error)
    assert f"another command (process {os.getpid()}) is reading the models" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "deadline_s"), [("import time; time.sleep(60)", 1.0), ("while True: pass", 3.0)])
def test_a_description_is_given_up_when_it_stands_still_or_computes_for_ever(
    code: str, deadline_s: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, seconds in {"DEADLINE_S": deadline_s, "CPU_S": 0.02, "SAY_EVERY_S": 0.3, "LOOK_S": 0.1}.items():
        monkeypatch.setattr(catalogue, name, seconds)
    with pytest.raises(subprocess.TimeoutExpired):
        catalogue._run([sys.executable, "-c", code], lambda: None)
    assert "reading the models and strategies (" in capsys.readouterr().err


def test_validation_needs_neither_torch_nor_mlflow(description: Description) -> None:
    program = (
        "import sys;"
        "from scalebook.training.experiments import catalogue, command_line, identity, validation;"
        "from scalebook.training.experiments import experiment;"
        "from scalebook.training.base import user_modules; import scalebook.training.cli.main;"
        "print([name for name in ('torch', 'lightning', 'mlflow', 'streamlit') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_another_environment_is_another_description_where_the_modules_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scalebook.toml").write_text('modules = ["mine"]\n', encoding="utf-8")
    (tmp_path / "mine.py").write_text(
        'import os\nROWS = int(os.environ.get("ROWS", "1"))\nA = os.environ["COLUMNS_"]\nB = os.getenv(\'B_\')\n',
        encoding="utf-8",
    )
    workspace = Workspace(tmp_path)
    seen = {catalogue.content_hash(workspace)}
    monkeypatch.setenv("SHELL_LEVEL", "2")
    assert catalogue.content_hash(workspace) in seen
    for name in ("ROWS", "COLUMNS_", "B_"):
        for value in ("64", "256"):
            monkeypatch.setenv(name, value)
            assert catalogue.content_hash(workspace) not in seen
            seen.add(catalogue.content_hash(workspace))
