"""What a job's folder has that MLflow gets when the job ends: log, figures of single workers, use of the machine."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from scalebook.training.jobs import usage
from scalebook.training.jobs.folder import JobFolder
from scalebook.training.tracking import names

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    from scalebook.training.tracking.spool import Spool

MOST_SAMPLES: Final = 240
"""Of the use of the machine; evenly taken of more."""
BATCH: Final = 1000


def leave(client: "MlflowClient | Spool", job: JobFolder) -> None:
    """In the order in which they matter; what MLflow raises goes to the caller."""
    for file in (job.log, job.path / names.WORKERS_JSONL):
        if file.exists():
            client.log_artifact(job.id, str(file))
    points = list(_system(job))
    for first in range(0, len(points), BATCH):
        client.log_batch(job.id, metrics=points[first : first + BATCH], synchronous=True)


def _system(job: JobFolder) -> "Iterator[Metric]":
    """Under the names of MLflow's own system metrics: of the run alone, CPU in parts of the cores that it was lent."""
    from mlflow.entities import Metric

    started = job.started()
    if started is None:
        return
    samples = usage.read(job)
    cores = len(started.cores) or os.cpu_count() or 1
    thinned = samples[:: max(1, -(-len(samples) // MOST_SAMPLES))]
    numbers = {uuid: i for i, uuid in enumerate(dict.fromkeys(gpu.uuid for one in thinned for gpu in one.gpus))}
    for step, sample in enumerate(thinned):
        at = int(1000 * (started.started + sample.seconds))
        told: list[tuple[str, float | None]] = [
            ("cpu_utilization_percentage", 100 * sample.cores / cores),
            ("system_memory_usage_megabytes", sample.memory_mb),
        ]
        for gpu in sample.gpus:
            name = f"gpu_{numbers[gpu.uuid]}"
            told.append((f"{name}_utilization_percentage", None if gpu.busy is None else 100 * gpu.busy))
            told.append((f"{name}_memory_usage_megabytes", gpu.memory_mb))
        yield from (Metric(f"{names.SYSTEM}{name}", value, at, step) for name, value in told if value is not None)
