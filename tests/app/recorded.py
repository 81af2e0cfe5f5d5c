"""Workspaces with recorded runs, made through MLflow and the job folder as training makes them."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric

from scalebook.training.base.files import records, yaml
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.trust import JOB, sign
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, JobStart, Result
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import experiment_id, open_store

ASYNC = {"class_path": "scalebook.training.lightning.AsyncPS", "init_args": {"rule": "async"}}


def config(workers: int = 2, strategy: Any = ASYNC, lr: float = 0.001) -> dict[str, Any]:
    """A config of a PixelCNN on digits."""
    return {
        "seed_everything": 1,
        "trainer": {"strategy": strategy, "devices": workers, "max_epochs": 5},
        "model": {"class_path": "scalebook.training.zoo.models.PixelCNN"},
        "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 32}},
        "optimizer": {"class_path": "torch.optim.Adam", "init_args": {"lr": lr}},
    }


def record(
    workspace: Workspace,
    *,
    cell: str = "pixelcnn-async-2",
    notebook: str = "first-steps.md",
    seed: int = 1,
    state: str = "finished",
    points: int = 30,
    workers: int = 2,
    config_hash: str = "0" * 12,
    level: float = 2.0,
    what: dict[str, Any] | None = None,
    metric: str = names.VAL_BITS_PER_DIM,
) -> JobFolder:
    """One run with curves, tags, shares and a job folder; `state` as JobFolder.state will derive it: a `stopped`
    one was stopped before it began, the others began 20 s ago.

    What is validated, `metric`, falls from `level` + 2 towards `level`. A `running` one belongs to this process.
    """
    client = open_store(workspace)
    tags = {
        names.TAG_CELL: cell,
        names.TAG_NOTEBOOK: notebook,
        names.TAG_SEED: str(seed),
        names.TAG_CONFIG_HASH: config_hash,
        names.TAG_STRATEGY: "AsyncPS",
        names.TAG_RULE: "async",
        names.TAG_WORKERS: str(workers),
        names.TAG_BATCH_PER_WORKER: "32",
        names.TAG_MODEL: "PixelCNN",
        names.TAG_DATA: "Digits",
        names.TAG_LR_ASKED: "0.001",
    }
    experiment = experiment_id(client, workspace, Path(notebook).stem)
    run = client.create_run(experiment, tags=tags, run_name=f"{cell} seed {seed}").info.run_id
    job = _job(workspace, run, cell, notebook, seed, workers, config_hash, what or config(workers))
    if state == "waiting":
        client.set_terminated(run, "SCHEDULED")
        return job
    client.log_batch(run, metrics=_metrics(points, level, workers, metric))
    if state == "running":
        job.write(JobStart(LocalHandle.of_this_process(), time.time()))
        write_pushes(job.path, points, workers)
    else:
        _end(client, run, job, state)
    return job


def _job(workspace: Workspace, run: str, cell: str, notebook: str, seed: int, workers: int, config_hash: str,
         what: dict[str, Any]) -> JobFolder:  # fmt: skip
    job = JobFolder(workspace.jobs / run)
    job.path.mkdir(parents=True)
    job.config.write_text(yaml.dump(what), encoding="utf-8")
    job.log.write_text("epoch 0: val/bits_per_dim 3.2\nepoch 1: val/bits_per_dim 2.4\n", encoding="utf-8")
    job.write(
        JobRequest(
            id=run,
            created=time.time(),
            mlflow_experiment=Path(notebook).stem,
            tracking_uri=workspace.tracking_uri(),
            seed=seed,
            workers=workers,
            notebook=notebook,
            cell=cell,
            config_hash=config_hash,
            strategy="AsyncPS",
        )
    )
    sign(job.path, job.id, JOB)
    return job


def _end(client: MlflowClient, run: str, job: JobFolder, state: str) -> None:
    status = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}[state]
    failed = state == "failed"
    if state != "stopped":  # that one never began; the others' process is gone
        job.write(JobStart(LocalHandle(replace(ProcessId.of(), start=0)), time.time() - 20))
    client.set_tag(run, names.TAG_STATUS, state)
    client.log_text(run, job.config.read_text(encoding="utf-8"), names.CONFIG_ARTIFACT)
    write_pushes(job.path, 30, job.request().workers)
    client.log_artifact(run, str(job.path / names.STALENESS_JSON))
    client.log_artifact(run, str(job.path / names.PUSHES_JSON))
    client.set_terminated(run, status)
    job.write(
        Result(
            status=state,  # type: ignore[arg-type]  # one of the three, as the table above has checked
            ended=time.time(),
            failure="worker lost" if failed else None,
            cause="worker 1 died: pid 4711, SIGKILL" if failed else "",
            advice="Find the cause in the log, then run again." if failed else "",
            worker=1 if failed else None,
        )
    )


def write_pushes(folder: Path, points: int, workers: int, shards: int = 2) -> None:
    """Worker i has pushed 4 times a point at staleness 1, 2 times at i and once at 4 or more; worker 1 is slow."""
    counts = [[0] * 5 for _ in range(workers)]
    told, parts = [], []
    for i in range(workers):
        for staleness, count in ((1, 4), (min(i, 3), 2), (4, 1)):
            counts[i][staleness] += count * points
        slow = 3.0 if i == 1 else 1.0
        told.append(
            {"compute": slow * points / 10, "wait": 0.1 * points, "communicate": 0.05 * points, "data": 0.01 * points,
             "updates": 7 * points, "samples": 224 * points, "memory_bytes": 1_500_000_000 + i * 250_000_000}
        )  # fmt: skip
        parts += [
            {"worker": i, "section": 0, "shard": shard, "applied": 7 * points, "dropped": i * (shard == 0),
             "duplicates": 0, "age_s": 0.012 * slow, "drift": 0.3}
            for shard in range(shards)
        ]  # fmt: skip
    records.save(folder / names.STALENESS_JSON, {"counts": counts})
    records.save(folder / names.PUSHES_JSON, {"counts": counts, "workers": told, "shards": parts})


def _metrics(points: int, level: float, workers: int, metric: str) -> list[Metric]:
    now = int(time.time() * 1000)
    found: list[Metric] = []

    def add(name: str, value: float, step: int) -> None:
        found.append(Metric(name, value, now, step))

    for i in range(1, points + 1):
        step = i * 40
        fall = math.exp(-i / 8)
        for name, value in (
            (names.TRAIN_LOSS, level + 2.1 * fall + 0.05 * math.sin(i * 2.4)),
            (metric, level + 2.0 * fall),
            (names.UPDATES, step),
            (names.SAMPLES, step * 32),
            (names.SECONDS, step / 65),
        ):
            add(name, value, step)
        for worker in range(workers):
            rate = 1040.0 / (3 if worker == 1 else 1) * (1 + 0.08 * math.sin(i * 1.7 + worker))
            add(names.per_worker(names.SAMPLES_PER_SECOND, worker), rate, step)
    last = points * 40
    shares = (0.72, 0.08, 0.15, 0.03)
    for name in (names.best(metric), names.final(metric)):
        add(name, level + 2.0 * math.exp(-points / 8), 0)
    ends: Sequence[tuple[str, float]] = (
        (names.UPDATES_PER_SECOND, 65.0),
        (names.SAMPLES_PER_SECOND, 2080.0),
        (names.STALENESS_MEAN, 0.97),
        (names.STALENESS_P95, 2.0),
        (names.PEAK_MEMORY_MB, 512.0),
        *zip(names.SHARES, shares, strict=True),
    )
    for name, value in ends:
        add(name, value, last)
    for worker in range(workers):
        for name, value in zip(names.SHARES, shares, strict=True):
            add(names.per_worker(name, worker), value, last)
    return found
