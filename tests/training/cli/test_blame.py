"""An exception of a person's own module: called that, with the line that raised it, in every process it may be in."""

from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.blame import own_error, own_files
from scalebook.training.cli.runner import run_job
from tests.training.runs import ASYNC, config, submitted

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("forked_descriptions")]

MODULE = """
import torch

from scalebook.training.zoo.data import Digits
from scalebook.training.zoo.models import MLPClassifier


class Fragile(MLPClassifier):
    \"\"\"Fails at its third batch.\"\"\"

    def training_step(self, batch, batch_idx):
        if batch_idx == 2:
            raise ValueError("no such shape")
        return super().training_step(batch, batch_idx)


class Crooked(MLPClassifier):
    \"\"\"Fails inside of torch.\"\"\"

    def training_step(self, batch, batch_idx):
        return torch.ones(2) @ torch.ones(3)
"""
DATA = """
from scalebook.training.zoo.data import Digits


class Empty(Digits):
    \"\"\"Has none.\"\"\"

    def train_dataloader(self):
        return [][0]
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("own code")
    (root / "fragile.py").write_text(MODULE, encoding="utf-8")
    (root / "empty.py").write_text(DATA, encoding="utf-8")
    (root / "scalebook.toml").write_text('modules = ["fragile", "empty"]\n', encoding="utf-8")
    workspace = Workspace(root)
    trust(workspace)
    return workspace


def ended(own: Workspace, strategy: Any = "auto", **classes: str) -> tuple[str | None, str, str]:
    given = config(strategy)
    for key, name in classes.items():
        given[key] = {**given[key], "class_path": name}
    job = submitted(own, given)
    assert run_job(job.path) == 1
    result = job.result()
    assert result is not None
    return result.failure, result.cause, result.frame


@pytest.mark.sampled
@pytest.mark.parametrize("strategy", ["auto", "ddp", ASYNC], ids=["single", "ddp", "async"])
def test_it_is_said_whose_error_it_is_and_where(own: Workspace, strategy: Any) -> None:
    failure, cause, frame = ended(own, strategy, model="fragile.Fragile")
    assert (failure, cause) == ("error in the model's code", "ValueError at fragile.py:13: no such shape")
    place = f'File "{own.root / "fragile.py"}", line 13, in training_step'
    assert frame == f'{place}\n    raise ValueError("no such shape")'


def test_an_error_inside_of_torch_is_told_at_the_line_that_called_it(own: Workspace) -> None:
    failure, cause, _ = ended(own, model="fragile.Crooked")
    assert failure == "error in the model's code"
    assert cause.startswith("RuntimeError at fragile.py:21: inconsistent tensor size")


def test_the_data_s_code_is_told_apart(own: Workspace) -> None:
    failure, cause, _ = ended(own, data="empty.Empty")
    assert (failure, cause) == ("error in the data's code", "IndexError at empty.py:9: list index out of range")


def test_a_traceback_without_a_person_s_frame_blames_nobody(own: Workspace) -> None:
    mine = own_files(own)
    assert mine(own.root / "fragile.py")
    assert mine(own.root / "helpers" / "beside.py")
    assert not mine(own.hidden / "jobs" / "x.py")
    assert not mine(Path(pytest.__file__))
    assert not mine(Path(__file__).parents[3] / "training" / "zoo" / "models" / "classifiers.py")
    text = 'Traceback (most recent call last):\n  File "/elsewhere/x.py", line 3, in f\n    g()\nKeyError: 1\n'
    assert own_error(text, mine) is None
    told = own_error(text, lambda path: path.name == "x.py")
    assert told is not None
    assert (told.cause, told.code) == ("KeyError at x.py:3: 1", "g()")
