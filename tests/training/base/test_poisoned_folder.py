"""A folder full of modules that are called like ours and our libraries': whatever is started there imports none."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs import supervisor_handle
from tests.shared_files import Prepared
from tests.training.base.poison import poison, ran

SCRIPT = shutil.which("scalebook", path=str(Path(sys.executable).parent))
DEADLINE_S = 110
PAGE = """# Page

```yaml experiment=small
config:
  trainer: {devices: 2, strategy: ddp, max_epochs: 1, accelerator: cpu, enable_progress_bar: false}
  model: {class_path: MLPClassifier, init_args: {hidden: 8}}
  data: {class_path: Digits, init_args: {batch_size: 64, limit: 128}}
```

```yaml search=few
experiment: small
objective: val/loss
trials: 1
sampler: gp
space:
  learning_rate: {log_uniform: [0.01, 0.1]}
  batch_size: {powers_of_two: [16, 32]}
```
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("poisoned")
    poison(made)
    prepared.into(Workspace(made))
    (made / "page.md").write_text(PAGE, encoding="utf-8")
    yield made
    if found := supervisor_handle.running(Workspace(made)):
        found.send(signal.SIGTERM)


def call(folder: Path, *words: str, code: int = 0) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in ("MLFLOW_TRACKING_URI", "PYTHONPATH")}
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "commands",
    [
        {"jobs list": "No jobs in", "notebook check page.md": "no problems"},  # first: others make jobs
        *(
            pytest.param(commands, marks=pytest.mark.thorough)
            for commands in (
                {"describe MLPClassifier": "MLPClassifier"},
                {"search check page.md": "few: OK"},
                {"notebook run page.md": "1 of 1 runs finished", "jobs list": "finished"},
                {"search run page.md": "few finished: 1 trials", "search list": "few"},
            )
        ),
    ],
    ids=" and ".join,
)
def test_no_command_imports_what_lies_in_its_folder(folder: Path, commands: dict[str, str]) -> None:
    assert SCRIPT is not None
    for words, said in commands.items():
        assert said in call(folder, SCRIPT, *words.split())
        assert ran(folder) == []


def test_nor_does_the_module(tmp_path: Path, prepared: Prepared) -> None:
    """`python -m scalebook`: Python itself looks for `training` in the current folder first, but for nothing else."""
    poison(tmp_path, packages=False)
    prepared.into(Workspace(tmp_path))
    (tmp_path / "page.md").write_text(PAGE, encoding="utf-8")
    assert "no problems" in call(tmp_path, sys.executable, "-m", "scalebook", "notebook", "check", "page.md")
    assert ran(tmp_path) == []
