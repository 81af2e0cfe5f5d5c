"""`tests.lightning.run` on a checkout that is made here: what it counts, and what it goes on from."""

from pathlib import Path

import pytest

from tests.lightning.results import path_of, read
from tests.lightning.run import main
from tests.lightning.table import counted, table

pytestmark = pytest.mark.long

TESTS = """
import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelPruning
from lightning.pytorch.demos.boring_classes import BoringModel

def trainer(path, **more):
    quiet = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
    return Trainer(default_root_dir=path, max_steps=2, accelerator="cpu", limit_val_batches=0, **quiet, **more)

def test_passes(tmp_path):
    made = trainer(tmp_path)
    made.fit(BoringModel())
    assert type(made.strategy).__name__ == "OneWorker"

def test_asks_for_another_strategy_itself(tmp_path):
    assert type(trainer(tmp_path, strategy="ddp_spawn", devices=2).strategy).__name__ == "DDPStrategy"

def test_makes_none():
    assert 1 + 1 == 2

def test_is_refused():
    raise ValueError("trainer.callbacks: that. Leave it out, or use a strategy other than AsyncPS.")

def test_names(tmp_path):
    assert type(trainer(tmp_path).strategy).__name__ == "SingleDeviceStrategy"

def test_fails(tmp_path):
    assert not hasattr(trainer(tmp_path).strategy, "arguments")

def test_fails_anyway(tmp_path):
    trainer(tmp_path)
    assert 1 + 1 == 3

def test_hangs(tmp_path):
    trainer(tmp_path)
    import time
    time.sleep(60)

@pytest.mark.skip(reason="no GPU")
def test_is_skipped():
    pass
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout" / "tests" / "tests_pytorch" / "trainer"
    folder.mkdir(parents=True)
    (folder.parents[2] / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (folder.parent / "conftest.py").write_text("")
    (folder / "test_it.py").write_text(TESTS)
    return folder.parents[2]


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_the_table_is_of_tests_that_use_the_strategy(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    arguments = [str(checkout), "--folders", "trainer", "--results", str(results), "--timeout", "3"]
    assert main([*arguments, "--way", "one"]) == 0
    found = {test.split("test_")[-1]: one for test, one in read(path_of("one", results)).items()}
    assert {name: (one.outcome, one.used) for name, one in found.items()} == {
        "passes": ("passed", 1),
        "asks_for_another_strategy_itself": ("skipped", 0),
        "makes_none": ("passed", 0),
        "is_refused": ("refused", 0),
        "names": ("names", 1),
        "fails": ("failed", 1),
        "fails_anyway": ("failed", 1),
        "hangs": ("timed out", 1),
        "is_skipped": ("skipped", 0),
    }
    baseline = {test.split("test_")[-1]: one.outcome for test, one in read(path_of("plain", results)).items()}
    assert baseline == {
        "names": "passed",
        "fails": "passed",
        "fails_anyway": "failed",
        "hangs": "timed out",
    }
    assert sorted(test.split("test_")[-1] for test in counted("one", results)) == ["fails", "names", "passes"]
    assert "| all | 1 | 0 | 1 | 0 | 1 | 50.0 % |" in table(results)
    assert "failed: trainer/test_it.py::test_fails: AssertionError" in capsys.readouterr().out


def test_a_wrong_path_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert "Give the path of a checkout of Lightning's repository" in capsys.readouterr().err
