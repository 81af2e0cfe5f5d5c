import json
from typing import Any

from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.runner import run_job
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs.job_folder import JobFolder, TrialOf
from scalebook.training.jobs.job_requests import submit
from tests.training.runs import config


def trial(workspace: Workspace, description: Description, given: dict[str, Any]) -> JobFolder:
    (job,) = submit(workspace, Experiment.read(given, description), seeds=[1], inline=True, trial=TrialOf("", 0))
    assert run_job(job.path) == 0, job.tail()
    return job


def points(job: JobFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in job.curve.read_text(encoding="utf-8").splitlines()]


def test_a_trial_leaves_a_point_for_each_validation(workspace: Workspace, description: Description) -> None:
    found = points(trial(workspace, description, config(max_epochs=2)))
    assert len(found) == 2
    assert [one["samples"] for one in found] == [found[0]["samples"], 2 * found[0]["samples"]]
    assert found[0]["updates"] * 8 >= found[0]["samples"] > 0
    assert 0 < found[0]["seconds"] < found[1]["seconds"]
    assert set(found[0]["metrics"]) == {"val/loss", "val/accuracy"}


def test_without_validations_for_each_epoch(workspace: Workspace, description: Description) -> None:
    found = points(trial(workspace, description, config(max_epochs=2, limit_val_batches=0)))
    assert len(found) == 2
    assert all(one["metrics"]["train/loss"] > 0 for one in found)
