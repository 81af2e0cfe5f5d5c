"""Recorded runs on few digits, for tests."""

from pathlib import Path
from typing import Any

from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.runner import run_job
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.job_requests import submit
from scalebook.training.tracking.run_reader import RunReader, RunRecord

ASYNC: dict[str, Any] = {"class_path": "AsyncPS", "init_args": {"workers": 2}}


def config(strategy: Any = "auto", *, lr: float = 0.1, **trainer: Any) -> dict[str, Any]:
    """A small classifier on 128 digits; `trainer` over one epoch on the CPU."""
    common = {"accelerator": "cpu", "max_epochs": 1, "enable_model_summary": False, "enable_progress_bar": False}
    devices = {} if strategy == "auto" else {"devices": 2}
    return {
        "model": {"class_path": "MLPClassifier", "init_args": {"hidden": 16}},
        "data": {"class_path": "Digits", "init_args": {"batch_size": 8, "limit": 128}},
        "optimizer": {"class_path": "SGD", "init_args": {"lr": lr}},
        "trainer": {"strategy": strategy, **devices, **common, **trainer},
    }


def submitted(workspace: Workspace, given: dict[str, Any], seed: int = 1) -> JobFolder:
    """A job that this process will run."""
    (job,) = submit(workspace, Experiment.read(given, describe(workspace)), seeds=[seed], inline=True)
    return job


def run(workspace: Workspace, given: dict[str, Any], seed: int = 1) -> tuple[JobFolder, int, RunRecord]:
    """Submit, run here, and read what MLflow has of it."""
    job = submitted(workspace, given, seed)
    code = run_job(job.path)
    return job, code, reader(workspace).run(job.id)


def reader(workspace: Workspace) -> RunReader:
    return RunReader(workspace.tracking_uri())


def artifacts(workspace: Workspace, run_id: str) -> dict[str, Path]:
    """Artifacts of a run of the embedded store, by name."""
    folder = workspace.artifacts / run_id / "artifacts"
    return {path.name: path for path in folder.iterdir()}
