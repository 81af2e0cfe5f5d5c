"""Runs with virtual workers as any other: progress and time left, a stop that leaves what goes on, pruning."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.runner import run_job
from scalebook.training.experiments.catalogue import describe
from scalebook.training.jobs.job_folder import Progress, TrialOf
from scalebook.training.jobs.job_requests import submit
from scalebook.training.search.driver.trial_jobs import CurveTail
from scalebook.training.search.study.study import Study
from scalebook.training.tracking import names
from tests.training.cli.test_runner import run_while
from tests.training.runs import config, reader, submitted
from tests.training.search.studies import RATE, journal, search

pytestmark = [pytest.mark.long, pytest.mark.sampled]

WORKERS: Final = 4
GRADIENT_S: Final = 1e5
BATCHES: Final = 16  # of an epoch
EPOCH: Final = 8 * BATCHES  # samples


def virtual(max_epochs: int, **settings: Any) -> dict[str, Any]:
    arguments = {"workers": WORKERS, "host": "virtual", "clock": {"gradient_s": GRADIENT_S}}
    return config(
        {"class_path": "AsyncPS", "init_args": arguments},
        devices=1,
        max_epochs=max_epochs,
        num_sanity_val_steps=0,
        **settings,
    )


@pytest.mark.thorough
def test_progress_is_in_both_times_and_a_stopped_run_goes_on_to_its_end(workspace: Workspace) -> None:
    """Each gradient takes a day of virtual time; what is left is told in the seconds that pass here."""
    job = submitted(workspace, virtual(20_000))
    seen: list[Progress | None] = []

    def stop() -> None:
        seen.append(job.progress())
        os.kill(os.getpid(), signal.SIGTERM)

    assert run_while(job, stop) == 0
    (at,) = seen
    assert at is not None
    assert at.fraction is not None
    assert at.left_s is not None
    assert at.seconds == pytest.approx(at.updates / WORKERS * GRADIENT_S, abs=GRADIENT_S)
    assert 0 < at.left_s < at.seconds * (1 - at.fraction) / at.fraction / 100
    result, path = job.result(), job.newest_checkpoint()
    assert result is not None
    assert (result.status, reader(workspace).run(job.id).status) == ("stopped", "KILLED")
    assert path is not None
    kept = torch.load(path, weights_only=True)
    epochs = kept["epoch"] + 3
    on = submitted(workspace, virtual(epochs) | {"ckpt_path": str(path)})
    assert run_job(on.path) == 0
    found = reader(workspace).run(on.id).metrics
    assert found[names.UPDATES] == epochs * BATCHES
    assert found[names.SAMPLES] == epochs * EPOCH
    seconds = (epochs * BATCHES / WORKERS - 1) * GRADIENT_S
    assert found[names.SECONDS] == pytest.approx(seconds, abs=GRADIENT_S), "gradients under way are computed anew"
    assert found[names.REAL_SECONDS] < found[names.SECONDS] / 100


@pytest.mark.parametrize(("updates", "anew"), [(12, 0), (14, 1)])
def test_its_seconds_go_on_from_a_checkpoint(workspace: Workspace, updates: int, anew: int) -> None:
    """After 12 updates all four workers have pushed; after 14 two gradients are under way, and computed anew."""
    callback = {"class_path": "ModelCheckpoint", "init_args": {"every_n_train_steps": updates, "save_top_k": -1}}
    job = submitted(workspace, virtual(1, callbacks=[callback]))
    assert run_job(job.path) == 0
    (path,) = job.path.rglob(f"*step={updates}.ckpt")
    on = submitted(workspace, virtual(2) | {"ckpt_path": str(path)})
    assert run_job(on.path) == 0
    assert reader(workspace).run(on.id).metrics[names.SECONDS] == (2 * BATCHES / WORKERS - 1 + anew) * GRADIENT_S


@pytest.mark.thorough
def test_a_search_prunes_it_by_the_samples_of_its_curve(workspace: Workspace, tmp_path: Path) -> None:
    """What the driver of a search does, with a study of which eight trials have ended that were better."""
    spec = search(RATE, pruner="median")
    study = Study.open(journal(tmp_path), "x", spec)
    for _ in range(8):
        asked = study.ask()
        for epoch in range(1, 9):
            study.report(asked.number, epoch * EPOCH, 0.01)
        study.finish(asked.number, [0.01])
    mine, trial = study.ask(), TrialOf("x" * 32, 8, "learning_rate 0.1")
    found = {"workspace": workspace, "config": virtual(20_000), "seeds": [1], "description": describe(workspace)}
    (job,) = submit(**found, inline=True, trial=trial)  # type: ignore[arg-type]
    points: list[Mapping[str, Any]] = []

    def look() -> None:
        points.extend(CurveTail(job).news())
        for point in points:
            study.report(mine.number, point["samples"], point["metrics"][names.VAL_LOSS])
        if study.should_prune(mine.number):
            job.ask_to_stop("pruned: other trials were better at that point")

    assert run_while(job, look) == 0
    result = job.result()
    assert result is not None
    assert (result.status, result.cause) == ("stopped", "pruned: other trials were better at that point")
    assert len(points) >= 3
    for epoch, point in enumerate(points, start=1):
        assert point["samples"] == epoch * EPOCH
        assert point["seconds"] == pytest.approx(epoch * BATCHES / WORKERS * GRADIENT_S, abs=GRADIENT_S)
