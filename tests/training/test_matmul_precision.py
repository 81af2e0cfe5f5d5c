"""`float32_matmul_precision`: a key of the config, which every worker of every strategy has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scalebook.training.base.files import yaml
from scalebook.training.cli.lightning_cli import TrainingCLI
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.identity import config_hash
from scalebook.training.experiments.validation import validate
from scalebook.training.zoo.models import MLPClassifier
from tests.training.runs import config

KEY = "float32_matmul_precision"
STRATEGIES: dict[str, Any] = {
    "auto": "auto",
    "ddp": "scalebook.training.lightning.DDP",
    "async": {"class_path": "scalebook.training.lightning.AsyncPS", "init_args": {"workers": 2}},
    "virtual": {
        "class_path": "scalebook.training.lightning.AsyncPS",
        "init_args": {"workers": 2, "host": "virtual", "clock": {"gradient_s": 0.1}},
    },
}


class Tells(MLPClassifier):
    """Writes down what it computes with, in whichever process."""

    folder = Path()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        (self.folder / str(self.global_rank)).write_text(torch.get_float32_matmul_precision())
        return super().training_step(batch, batch_idx)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    yield
    torch.set_float32_matmul_precision(before)
    torch.set_num_threads(threads)


@pytest.mark.sampled
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_worker_computes_with_it(strategy: str, description: Description, tmp_path: Path) -> None:
    given = Experiment(config(STRATEGIES[strategy], max_steps=4, default_root_dir=str(tmp_path)), description).to_run()
    given["model"] = {"class_path": f"{__name__}.Tells", "init_args": {"hidden": 4}}
    if strategy in ("async", "virtual"):
        given["trainer"].pop("devices")
    Tells.folder = tmp_path
    TrainingCLI("fit", {**given, KEY: "high"}, None)
    workers = ["0", "1"] if strategy in ("ddp", "async") else ["0"]
    assert {worker: (tmp_path / worker).read_text() for worker in workers} == dict.fromkeys(workers, "high")


def test_without_it_what_a_module_of_ones_own_has_set_stays(description: Description) -> None:
    torch.set_float32_matmul_precision("medium")
    TrainingCLI("fit", Experiment(config(max_steps=1), description).to_run(), None)
    assert torch.get_float32_matmul_precision() == "medium"


def test_a_mistake_is_found_before_anything_starts(description: Description) -> None:
    assert validate(Experiment.read({**config(), KEY: "high"}, description)) == []
    (problem,) = validate(Experiment.read({**config(), KEY: "tf32"}, description))
    assert str(problem).startswith(f"{KEY}: 'tf32' is not one of highest, high, medium.")


def test_it_belongs_to_what_a_run_is(description: Description) -> None:
    without, done = config(), Experiment({**config(), KEY: "high"}, description).to_run()
    assert done[KEY] == "high"
    assert KEY not in Experiment({**without, KEY: None}, description).to_run()
    assert config_hash(Experiment.read(done, description)) != config_hash(Experiment.read(without, description))
    assert config_hash(Experiment.read({**without, KEY: None}, description)) == config_hash(
        Experiment.read(without, description)
    )
    assert list(yaml.load(yaml.dump(done)))[:4] == ["seed_everything", "threads", KEY, "trainer"]
