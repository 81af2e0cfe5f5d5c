"""A dry run: the strategy's own workers, one batch, no run."""

from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import dry_runs
from scalebook.training.jobs.dry_runs import DryRunResult
from tests.shared_files import Prepared

pytestmark = [pytest.mark.usefixtures("forked_descriptions"), pytest.mark.long]
OWN = """
import os
from pathlib import Path

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(LightningModule):
    def __init__(self, fails: str = "", trace: str = "") -> None:
        super().__init__()
        self.fails, self.trace = fails, trace
        self.layer = nn.Linear(4, 1)

    def step(self, batch, stage):
        with Path(self.trace).open("a") as file:
            file.write(f"{stage} {os.getpid()}\\n")
        if self.fails == stage:
            raise ValueError(f"bad {stage} batch")
        loss = (self.layer(batch[0]) ** 2).mean()
        self.log(f"{stage}_loss", loss)
        return loss

    def training_step(self, batch, _):
        return self.step(batch, "train")

    def validation_step(self, batch, _):
        self.step(batch, "val")


class Points(LightningDataModule):
    def __init__(self, batch_size: int = 8) -> None:
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(64, 4)), self.batch_size)

    val_dataloader = train_dataloader
"""


@pytest.fixture
def lab(tmp_path: Path, prepared: Prepared) -> Description:
    """What a trusted folder with a module of one's own has."""
    workspace = prepared.into(Workspace(tmp_path))
    (tmp_path / "dry_lab.py").write_text(OWN, encoding="utf-8")
    (tmp_path / "scalebook.toml").write_text('modules = ["dry_lab"]\n', encoding="utf-8")
    trust(workspace)
    return catalogue.describe(workspace)


def tried(lab: Description, strategy: Any, workers: int, **arguments: str) -> tuple[DryRunResult, list[list[str]]]:
    """The result, and each batch that was computed: its stage and the process."""
    trace = Path(lab.folder) / "trace"
    trace.write_text("", encoding="utf-8")
    config = {
        "trainer": {"strategy": strategy, "devices": workers, "accelerator": "cpu", "max_epochs": 50},
        "model": {"class_path": "dry_lab.Net", "init_args": {"trace": str(trace), **arguments}},
        "data": "dry_lab.Points",
        "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}},
    }
    experiment = Experiment.read(config, lab)
    assert dry_runs.result(experiment) is None
    dry_runs.dry_run(experiment)
    result = dry_runs.result(experiment)
    assert result is not None
    return result, [line.split() for line in trace.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [("auto", 1), ("ddp", 2), ("AsyncPS", 2), ("Peers", 2),
     ({"class_path": "AsyncPS", "init_args": {"rule": "sync"}}, 2)],
)  # fmt: skip
def test_each_worker_process_trains_one_batch_and_no_run_is_recorded(
    lab: Description, strategy: Any, workers: int
) -> None:
    result, batches = tried(lab, strategy, workers)
    assert result.problem == ""
    trained = [process for stage, process in batches if stage == "train"]
    assert len(trained) == len(set(trained))
    fewest = 1 if strategy == "AsyncPS" else workers  # the first update ends the run: a slow worker may have no batch
    assert fewest <= len(trained) <= workers
    assert "val" in [stage for stage, _ in batches]
    assert set(result.metrics) == {"train_loss", "val_loss"}
    assert result.seconds > 0
    assert list(Workspace(Path(lab.folder)).jobs.iterdir()) == []


@pytest.mark.sampled
@pytest.mark.parametrize(("strategy", "workers"), [("auto", 1), ("AsyncPS", 2), ("ddp", 2)])
@pytest.mark.parametrize("stage", ["train", "val"])
def test_a_failure_names_the_line_of_the_users_code(lab: Description, strategy: str, workers: int, stage: str) -> None:
    result, _ = tried(lab, strategy, workers, fails=stage)
    assert f"bad {stage} batch" in result.problem
    assert "dry_lab.py" in result.frame
    assert "raise ValueError" in result.frame


def test_a_changed_config_and_changed_code_have_no_result(lab: Description) -> None:
    config = {"model": "dry_lab.Net", "data": "dry_lab.Points"}
    kept = {dry_runs.kept_at(Experiment.read(config, lab))}
    kept.add(dry_runs.kept_at(Experiment.read({**config, "trainer": {"devices": 2}}, lab)))
    (Path(lab.folder) / "dry_lab.py").write_text(f"{OWN}\n# more\n", encoding="utf-8")
    kept.add(dry_runs.kept_at(Experiment.read(config, catalogue.describe(Workspace(Path(lab.folder))))))
    assert len(kept) == 3
