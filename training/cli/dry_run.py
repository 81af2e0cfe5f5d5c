"""A few batches of training and validation, recorded nowhere: to see what a model logs (`scalebook describe --logged`),
and whether a config trains (`scalebook describe --dry-run`)."""

import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from scalebook.training.base import Workspace, active_run, failures
from scalebook.training.callbacks import logged
from scalebook.training.cli.blame import blamed
from scalebook.training.cli.lightning_cli import TrainingCLI, quieten
from scalebook.training.experiments import logged_metrics
from scalebook.training.jobs import DryRunResult


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


class _Fit(TrainingCLI):
    """A fit under Lightning's `fast_dev_run`: without checkpoints, loggers, and callbacks that end a run."""

    @override
    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        trainer = super().instantiate_trainer(**kwargs)
        self.names = LoggedNames()
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # made by Lightning's connector
        callbacks.append(self.names)
        return trainer


@contextmanager
def _recording_nothing(batches: int) -> Iterator[dict[str, Any]]:
    """The Trainer's arguments for a fit of so many batches that leaves nothing behind."""
    quieten()
    with tempfile.TemporaryDirectory(prefix="scalebook-dry-run-") as folder, active_run.logging_nothing():
        logger = {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": folder}}
        yield {
            "fast_dev_run": batches, "logger": logger, "default_root_dir": folder, "enable_progress_bar": False,
            "enable_model_summary": False,
        }  # fmt: skip


def list_metrics(config: Mapping[str, Any]) -> logged_metrics.LoggedMetrics:
    """What a fit of BATCHES batches on a CPU logs, or why it failed, in one line. Runs the user's code."""
    with _recording_nothing(logged_metrics.BATCHES) as arguments:
        trainer = {**config["trainer"], **arguments, "accelerator": "cpu", "devices": 1}
        try:
            names = _Fit("fit", {**config, "trainer": trainer}, None).names
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises is what there is to say
            return logged_metrics.LoggedMetrics(problem=failures.classify(error).cause)
    return logged_metrics.LoggedMetrics(
        list(names.validation), [name for name in names.every if name not in names.validation]
    )


def dry_run(config: Mapping[str, Any], workspace: Workspace) -> DryRunResult:
    """A batch of training and a batch of validation in the workers of the config's own strategy. Runs the user's code.

    It begins with new parameters, also where the config names a checkpoint.
    """
    begun = time.monotonic()
    with _recording_nothing(1) as arguments:
        wanted = {key: value for key, value in config.items() if key != "ckpt_path"}
        try:
            fit = _Fit("fit", {**wanted, "trainer": {**config["trainer"], **arguments}}, None)
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises is what there is to say
            traceback.print_exception(error)
            failure = blamed(failures.classify(error), error, workspace, config.get("model"), config.get("data"))
            return DryRunResult(time.monotonic() - begun, problem=failure.cause, frame=failure.frame)
    metrics = {name: float(value) for name, value in fit.trainer.callback_metrics.items()}
    return DryRunResult(time.monotonic() - begun, metrics)
