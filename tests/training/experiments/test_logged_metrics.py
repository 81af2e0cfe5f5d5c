"""What a model logs, as two batches tell: in a process of its own, kept by model, data and modules."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.files import records, yaml
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue, logged_metrics
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.logged_metrics import (
    LoggedMetrics,
    cached_metrics,
    complete_for,
    monitor_problems,
    unlogged,
)
from scalebook.training.experiments.model_parameters import kept_at
from scalebook.training.experiments.search.definition import search_problems
from scalebook.training.experiments.validation import validate
from scalebook.training.notebook.claim_checks import unknown_metric
from scalebook.training.notebook.notebook_problems import check
from scalebook.training.notebook.parse import parse
from tests.app.described import description
from tests.shared_files import Prepared

OWN = '''
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Own(LightningModule):
    """A stranger's."""

    def __init__(self, width: int = 4, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails
        self.layer = nn.Linear(width, 1)

    def training_step(self, batch, _):
        if self.fails:
            raise RuntimeError("no such file: weights.bin")
        loss = (self.layer(batch[0]) ** 2).mean()
        self.log("train loss", loss)
        print("printed by the model")
        return loss

    def validation_step(self, batch, _):
        self.log(f"métrique/{self.word()}", (self.layer(batch[0]) ** 2).mean())
        self.logger.log_metrics({"past": 1.0})

    def word(self):
        return "é (macro)" if self.layer.in_features == 5 else "é"


class Points(LightningDataModule):
    """A stranger's."""

    def __init__(self, width: int = 4, batch_size: int = 8) -> None:
        super().__init__()
        self.width, self.batch_size = width, batch_size

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(64, self.width)), self.batch_size)

    val_dataloader = train_dataloader
'''


def monitoring(metric: str, *more: Any) -> dict[str, Any]:
    stopping = {"class_path": "lightning.pytorch.callbacks.EarlyStopping", "init_args": {"monitor": metric}}
    return {"trainer": {"callbacks": [stopping, *more], "max_epochs": 2}, "model": "PixelCNN",
            "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 32}}}  # fmt: skip


@pytest.fixture
def about(tmp_path: Path) -> Description:
    """A folder in which somebody has asked what the PixelCNN logs."""
    told = replace(description(), folder=str(tmp_path))
    path = kept_at("logged", Experiment.read(monitoring("a"), told))
    assert path is not None
    path.parent.mkdir(parents=True)
    records.save(path, LoggedMetrics(["val/bits_per_dim", "val_é"], ["train/bits_per_dim"]))
    return told


def own(folder: Path, prepared: Prepared) -> tuple[Workspace, Description]:
    """A folder with a module, which is trusted."""
    workspace = prepared.into(Workspace(folder))
    (folder / "own_lab.py").write_text(OWN, encoding="utf-8")
    (folder / "scalebook.toml").write_text('modules = ["own_lab"]\n', encoding="utf-8")
    trust(workspace)
    return workspace, catalogue.describe(workspace)


@pytest.mark.usefixtures("forked_descriptions")
def test_two_batches_tell_by_loop_and_leave_nothing(tmp_path: Path, prepared: Prepared) -> None:
    workspace, told = own(tmp_path, prepared)
    config: dict[str, Any] = {"model": {"class_path": "own_lab.Own"}, "data": {"class_path": "own_lab.Points"},
                              "trainer": {"max_epochs": 50, "strategy": "ddp", "devices": 8}}  # fmt: skip
    before = sorted(path for path in workspace.hidden.rglob("*") if "cache" not in path.parts)
    assert cached_metrics(Experiment.read(config, told)) is None
    logged_metrics.find_out(Experiment.read(config, told))
    assert cached_metrics(Experiment.read(config, told)) == LoggedMetrics(["métrique/é"], ["train loss"])
    assert cached_metrics(Experiment.read({**config, "trainer": {"max_epochs": 1}}, told)) == cached_metrics(
        Experiment.read(config, told)
    ), "not of how it is trained"
    assert (
        cached_metrics(
            Experiment.read({**config, "model": {"class_path": "own_lab.Own", "init_args": {"width": 6}}}, told)
        )
        is None
    )
    assert sorted(path for path in workspace.hidden.rglob("*") if "cache" not in path.parts) == before, "no run"


@pytest.mark.usefixtures("forked_descriptions")
def test_a_model_that_fails_says_why(tmp_path: Path, prepared: Prepared) -> None:
    workspace, told = own(tmp_path, prepared)
    config = {
        "model": {"class_path": "own_lab.Own", "init_args": {"fails": True}},
        "data": {"class_path": "own_lab.Points"},
    }
    logged_metrics.find_out(Experiment.read(config, told))
    failed = cached_metrics(Experiment.read(config, told))
    assert failed is not None
    assert failed.problem == "RuntimeError: no such file: weights.bin"
    assert complete_for(Experiment.read(config, told)) is None, "what failed says nothing of what is logged"
    assert not list(workspace.jobs.iterdir())


@pytest.mark.usefixtures("forked_descriptions")
def test_modules_of_a_folder_that_is_not_trusted_are_not_run(tmp_path: Path, prepared: Prepared) -> None:
    workspace = prepared.into(Workspace(tmp_path))
    (tmp_path / "own_lab.py").write_text("open('ran', 'w')\n", encoding="utf-8")
    (tmp_path / "scalebook.toml").write_text('modules = ["own_lab"]\n', encoding="utf-8")
    told = catalogue.describe(workspace)
    logged_metrics.find_out(Experiment.read(monitoring("a"), told))
    found = cached_metrics(Experiment.read(monitoring("a"), told))
    assert found is not None
    assert found.problem == "this folder is not trusted, and it contains modules: own_lab"


def test_what_takes_too_long_is_ended_and_said(about: Description, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_metrics, "DEADLINE_S", 0.05)
    logged_metrics.find_out(Experiment.read(monitoring("a"), about))
    found = cached_metrics(Experiment.read(monitoring("a"), about))
    assert found is not None
    assert found.problem == "2 batches took more than 0.05 s"


def test_a_monitored_name_that_nothing_logs_is_an_error(about: Description) -> None:
    (problem,) = [one for one in validate(Experiment.read(monitoring("val_los"), about)) if "monitors" in one.message]
    assert problem.severity == "error"
    assert (problem.key, problem.message) == ("trainer.callbacks", "monitors val_los, which nothing logs")
    assert "Two batches logged val/bits_per_dim, val_é, train/bits_per_dim." in problem.fix
    assert not [one for one in validate(Experiment.read(monitoring("val_é"), about)) if "monitors" in one.message]
    assert not list(monitor_problems(Experiment.read(monitoring("val_los"), description()))), "nobody has asked"


def test_a_callback_of_somebody_elses_may_log_it(about: Description) -> None:
    config = monitoring("theirs", {"class_path": "their_lab.Logs"})
    assert not list(monitor_problems(Experiment.read(config, about)))
    assert unlogged([Experiment.read(one, about) for one in [config]], "theirs") is None


def test_a_name_that_cannot_be_recorded_is_said_before_the_start(about: Description) -> None:
    path = kept_at("logged", Experiment.read(monitoring("a"), about))
    assert path is not None
    records.save(path, LoggedMetrics(["AUC (macro)"]))
    (problem,) = monitor_problems(Experiment.read(monitoring("AUC (macro)"), about))
    assert problem.key == "model"
    assert problem.message.startswith("logs AUC (macro), which cannot be recorded")


def test_a_search_for_what_nothing_logs_is_refused(about: Description) -> None:
    config = {key: value for key, value in monitoring("val_é").items() if key != "trainer"}

    def said(objective: str, **space: Any) -> list[str]:
        body = {"objective": objective, "space": space or {"learning_rate": {"log_uniform": [0.001, 0.1]}}}
        problems = search_problems(body, Experiment.read(config, about), about)
        return [one.message for one in problems if one.key == "objective" and one.severity == "error"]

    assert said("val_los") == ["is val_los, which the model does not log"]
    assert said("val_é") == said("train/loss") == said("seconds") == []
    assert said("val_los", model={"values": ["PixelCNN", "MLPClassifier"]}) == [], "another model in each trial"


@pytest.mark.parametrize(("metric", "keys"), [("val_los", ["metric"]), ("val_é", [])])
def test_check_refuses_a_comparison_by_what_nothing_logs(about: Description, metric: str, keys: list[str]) -> None:
    cell = yaml.dump({"config": monitoring("val_é")})
    compared = yaml.dump({"runs": ["lab"], "metric": metric})
    nb = parse(f"```yaml experiment=lab\n{cell}```\n\n```yaml comparison=both\n{compared}```\n")
    found = [one.problem for one in check(nb, about) if one.cell_name == "both" and one.problem.severity == "error"]
    assert [one.key for one in found] == keys
    assert all("val_é" in one.fix for one in found), "what is logged"


def test_a_claim_on_what_nothing_logs_is_refused(about: Description) -> None:
    experiments = [Experiment(monitoring("val_é"), about)] * 2
    assert [one.severity for one in unknown_metric(experiments, "val_los")] == ["error"]
    assert list(unknown_metric(experiments, "val_é")) == []
    other = Experiment({**monitoring("val_é"), "model": "MLPClassifier"}, about)
    assert not [one for one in unknown_metric([*experiments, other], "val_los") if one.severity == "error"]
