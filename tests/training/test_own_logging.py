"""What a module of a user's own logs by other ways than `self.log`, and what it finds in `self.logger`: all of it is in
the run. And its checkpoint, read in a script and by the commands that evaluate a run."""

import os
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from scalebook.training.base.files import yaml
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.job_requests import all_jobs
from scalebook.training.notebook.result_row import shared_numbers
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunRecord
from tests.shared_files import Prepared
from tests.training.describing import fork_descriptions, forked
from tests.training.runs import ASYNC, artifacts, reader

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:Attribute 'net' is an instance:UserWarning"),
]

MODULE = """
import os

import lightning
import mlflow
import torch
from torch.utils.data import DataLoader, TensorDataset


class Slope(lightning.LightningModule):
    def __init__(self, net: torch.nn.Module, habit: str = "", width: int = 3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net, self.habit = net, habit
        if "seeded" in habit:
            lightning.seed_everything(42)
        if "early" in habit:
            mlflow.log_param("early", 1)
        if "autolog" in habit:
            mlflow.pytorch.autolog()

    def training_step(self, batch, index):
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self.log("val/loss", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]))
        if "everywhere" in self.habit:
            mlflow.set_tag(f"rank{self.global_rank}", "yes")

    def predict_step(self, batch, index):
        return self.net(batch[0])

    test_step = validation_step

    def on_train_epoch_start(self):
        if "late seed" in self.habit:
            torch.manual_seed(7)

    def on_fit_start(self):
        if "facts" in self.habit:
            self.logger.log_hyperparams({"vocabulary": 31337, "seed_everything": 7, "width": 5, "habit": self.habit})
        if "twice" in self.habit:
            self.logger.log_hyperparams({"vocabulary": 1})

    def on_train_end(self):
        if not self.trainer.is_global_zero:
            return
        if "hooks" in self.habit:
            mlflow.log_metric("confusion_total", 128.0)
            mlflow.log_dict({"a": [3, 1]}, "confusion.json")
        if "another" in self.habit:
            mlflow.end_run()
            mlflow.log_metric("late", 1.0)
        if "folder" in self.habit:
            os.makedirs(self.logger.log_dir, exist_ok=True)
            torch.save(torch.zeros(2), os.path.join(self.logger.log_dir, "predictions.pt"))


class Points(lightning.LightningDataModule):
    def __init__(self, batch_size: int = 16) -> None:
        super().__init__()
        self.batch_size = batch_size

    def _loader(self):
        x = torch.linspace(-1, 1, 64)[:, None]
        return DataLoader(TensorDataset(x, 3 * x), batch_size=self.batch_size)

    train_dataloader = val_dataloader = test_dataloader = predict_dataloader = lambda self: self._loader()
"""


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> Iterator[Workspace]:
    with pytest.MonkeyPatch.context() as patch:
        fork_descriptions(patch)
        workspace = Workspace(tmp_path_factory.mktemp("own-logging"))
        (workspace.root / "slope.py").write_text(textwrap.dedent(MODULE), encoding="utf-8")
        (workspace.root / "scalebook.toml").write_text('modules = ["slope"]\n', encoding="utf-8")
        prepared.open(workspace)
        trust(workspace)
        describe(workspace)
        yield workspace


@pytest.fixture
def own(described: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Has no run yet; the current folder is its root."""
    fork_descriptions(monkeypatch)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(described.root))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(described.root)
    shutil.rmtree(described.jobs, ignore_errors=True)
    shutil.rmtree(described.root / "out", ignore_errors=True)
    return described


def fit(
    workspace: Workspace, habit: str, strategy: Any = "auto", seed: int = 1, **trainer: Any
) -> tuple[JobFolder, RunRecord, str]:
    """The job, its record, and what was printed."""
    config = {
        "seed_everything": seed,
        "model": {
            "class_path": "slope.Slope",
            "init_args": {
                "habit": habit,
                "net": {"class_path": "torch.nn.Linear", "init_args": {"in_features": 1, "out_features": 1}},
            },
        },
        "data": {"class_path": "slope.Points"},
        "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.1}},
        "trainer": {
            "accelerator": "cpu", "max_epochs": 1, "strategy": strategy, "devices": 1 if strategy == "auto" else 2,
            "enable_model_summary": False, **trainer,
        },
    }  # fmt: skip
    (workspace.root / "x.yaml").write_text(yaml.dump(config), encoding="utf-8")
    done = forked("fit", "-c", "x.yaml")
    job = all_jobs(workspace)[0]  # the newest
    return job, reader(workspace).run(job.id), done.stdout + done.stderr


def strays(workspace: Workspace) -> list[str]:
    """Stores of MLflow's beside the workspace's own."""
    found = [*workspace.root.rglob("*.db"), *workspace.root.rglob("mlruns"), *workspace.root.rglob("mlartifacts")]
    return [str(path.relative_to(workspace.root)) for path in found if path != workspace.database]


def open_runs(workspace: Workspace) -> list[str]:
    client = MlflowClient(workspace.tracking_uri())
    ids = [experiment.experiment_id for experiment in client.search_experiments()]
    return [run.info.run_id for run in client.search_runs(ids) if run.info.status == "RUNNING"]


@pytest.mark.sampled
@pytest.mark.parametrize("strategy", ["auto", ASYNC, "ddp"], ids=["one", "async", "ddp"])
def test_what_mlflow_s_own_functions_log_is_in_the_run(own: Workspace, strategy: Any) -> None:
    """Called when the model is made, before the fork, and in hooks of every worker; beside `log_hyperparams`."""
    job, run, said = fit(own, "early hooks everywhere facts", strategy)
    assert run.status == "FINISHED", said
    assert run.metrics["confusion_total"] == 128.0
    assert "val/loss" in run.metrics
    ranks = ["rank0"] if strategy == "auto" else ["rank0", "rank1"]
    told_ranks = sorted(tag for tag in run.tags if tag.startswith("rank"))
    assert told_ranks == ranks if strategy != ASYNC else "rank0" in run.tags
    assert "confusion.json" in artifacts(own, job.id)
    told = {name: run.params.get(name) for name in ("early", "vocabulary", "seed_everything", "width")}
    assert told == {"early": "1", "vocabulary": "31337", "seed_everything": "1", "width": "5"}
    assert run.params["logged.seed_everything"] == "7"
    assert run.params["model.width"] == "3"
    assert not {"habit", "net"} & run.params.keys(), "as the config has them"
    assert (strays(own), open_runs(own)) == ([], [])
    assert not {"MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI"} & os.environ.keys()


def test_autolog_logs_to_the_run(own: Workspace) -> None:
    _, run, said = fit(own, "autolog", ASYNC)
    assert run.status == "FINISHED", said
    assert run.params["optimizer_name"] == "SGD"
    assert (strays(own), open_runs(own)) == ([], [])


def test_a_run_that_a_module_begins_itself_is_ended_with_it(own: Workspace) -> None:
    _, run, said = fit(own, "another", ASYNC)
    assert run.status == "FINISHED", said
    assert (strays(own), open_runs(own)) == ([], [])


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("habit", "strategy", "shared"),
    [
        ("", "auto", False), ("", ASYNC, False), ("", "ddp", False), ("seeded", "auto", True), ("seeded", ASYNC, True),
        ("late seed", "auto", True), ("late seed", ASYNC, True), ("late seed", "ddp", True),
    ],
    ids=str,
)  # fmt: skip
def test_runs_with_other_seeds_that_draw_the_same_numbers_are_known(
    habit: str, strategy: Any, shared: bool, own: Workspace
) -> None:
    _, one, said = fit(own, habit, strategy, seed=1)
    _, two, _ = fit(own, habit, strategy, seed=2)
    words = shared_numbers([one, two])
    assert words.startswith("seeds 1, 2 use the same random numbers, because the model or the data calls") == shared, (
        words
    )
    assert shared_numbers([one]) == shared_numbers([two, two]) == ""
    told = "calls seed_everything or manual_seed itself, with the seed 42, so `seed_everything: 1` does not determine"
    assert (told in said) == (habit == "seeded")
    assert one.tags.get(names.TAG_OWN_SEED) == ("42" if habit == "seeded" else None)


def test_a_fact_logged_again_with_another_value_is_an_error(own: Workspace) -> None:
    _, run, said = fit(own, "facts twice")
    assert run.status == "FAILED"
    assert "vocabulary: was logged as '31337' and is now '1'" in said


def test_a_module_finds_the_logger_of_its_config_and_else_the_run_s_folder(own: Workspace) -> None:
    csv = {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": "out"}}
    _, run, said = fit(own, "folder", ASYNC, logger=csv)
    assert run.status == "FINISHED", said
    assert "val/loss" in run.metrics
    assert sorted(path.name for path in (own.root / "out").rglob("*.pt")) == ["predictions.pt"]
    shutil.rmtree(own.jobs)
    job, run, said = fit(own, "folder")
    assert (job.path / "predictions.pt").is_file(), said


def test_a_run_with_callbacks_is_evaluated_and_its_checkpoint_read(own: Workspace) -> None:
    callbacks = [
        {"class_path": f"lightning.pytorch.callbacks.{name}", "init_args": arguments}
        for name, arguments in (
            ("ModelCheckpoint", {"monitor": "val/loss"}),
            ("EarlyStopping", {"monitor": "val/loss"}),
            ("LearningRateMonitor", {}),
            ("DeviceStatsMonitor", {}),
            ("TQDMProgressBar", {}),
        )
    ]
    job, run, said = fit(own, "hooks everywhere", callbacks=callbacks)
    assert run.status == "FINISHED", said
    value = run.metrics[names.final("val/loss")]
    for command in ("validate", "test", "predict"):
        done = forked(command, "--run", job.id[:8])
        assert done.returncode == 0, done.stderr
        assert command == "predict" or f"{value:.12f}"[:9] in done.stdout
    assert strays(own) == []
    assert reader(own).run(job.id).tags == run.tags, "evaluating records nothing"
    read = forked_value(own, job.path / "checkpoints" / "last.ckpt")
    assert read == pytest.approx(value, rel=1e-6)


def forked_value(workspace: Workspace, checkpoint: Path) -> float:
    """The loss of the checkpoint's model, as a script reads it: in a fork, since it imports the user's module."""
    import multiprocessing

    receiving, sending = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_loss, args=(workspace.root, checkpoint, sending))
    process.start()
    sending.close()
    assert receiving.poll(100)
    value: float = receiving.recv()
    process.join()
    return value


def _loss(root: Path, checkpoint: Path, answer: Any) -> None:
    import importlib
    import sys

    import torch

    sys.path.insert(0, str(root))
    slope = importlib.import_module("slope")
    model = slope.Slope.load_from_checkpoint(checkpoint, weights_only=True)
    assert isinstance(model.net, torch.nn.Linear)
    x = torch.linspace(-1, 1, 64)[:, None]
    with torch.no_grad():
        answer.send(float(torch.nn.functional.mse_loss(model.net(x), 3 * x)))
