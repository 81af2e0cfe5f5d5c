"""Two batches of training and validation, to see what a model logs (`scalebook describe --logged`)."""

import tempfile
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from scalebook.training.base import active_run, failures
from scalebook.training.callbacks import logged
from scalebook.training.cli.lightning_cli import TrainingCLI, quieten
from scalebook.training.experiments import LoggedMetrics
from scalebook.training.experiments.logged_metrics import BATCHES


class LoggedNames(Callback):
    """Collects the names of logged metrics, by loop."""

    def __init__(self) -> None:
        self.validation: dict[str, None] = {}
        self.every: dict[str, None] = {}

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.validation |= {name: None for name, _ in logged(trainer)}

    @override
    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        self.every |= dict.fromkeys(trainer.callback_metrics)

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.every |= dict.fromkeys(trainer.callback_metrics)


class DryRun(TrainingCLI):
    """A fit under Lightning's `fast_dev_run`: without checkpoints, loggers, and callbacks that end a run."""

    @override
    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        trainer = super().instantiate_trainer(**kwargs)
        self.names = LoggedNames()
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # made by Lightning's connector
        callbacks.append(self.names)
        return trainer


def logged_metrics(config: Mapping[str, Any]) -> LoggedMetrics:
    """What a fit of BATCHES batches on a CPU logs, or why it failed, in one line. Runs the user's code."""
    quieten()
    with tempfile.TemporaryDirectory(prefix="scalebook-dry-run-") as folder:
        logger = {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": folder}}
        trainer = {
            **config["trainer"], "fast_dev_run": BATCHES, "accelerator": "cpu", "devices": 1, "logger": logger,
            "default_root_dir": folder, "enable_progress_bar": False, "enable_model_summary": False,
        }  # fmt: skip
        try:
            with active_run.logging_nothing():
                names = DryRun("fit", {**config, "trainer": trainer}, None).names
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises is what there is to say
            return LoggedMetrics(problem=failures.classify(error).cause)
    return LoggedMetrics(list(names.validation), [name for name in names.every if name not in names.validation])
