"""What a job's folder has that MLflow gets when the job ends: log, figures of single workers, use of the machine."""

from typing import TYPE_CHECKING, Final

from scalebook.training.jobs.folder import JobFolder
from scalebook.training.jobs.usage import SystemMetrics
from scalebook.training.tracking import names

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from scalebook.training.tracking.spool import Spool

BATCH: Final = 1000


def leave(client: "MlflowClient | Spool", job: JobFolder) -> None:
    """In the order in which they matter; what MLflow raises goes to the caller."""
    from mlflow.entities import Metric

    for file in (job.log, job.path / names.WORKERS_JSONL):
        if file.exists():
            client.log_artifact(job.id, str(file))
    points = [
        Metric(name, value, at, step)
        for metrics, step, at in SystemMetrics(job).news()
        for name, value in metrics.items()
    ]
    for first in range(0, len(points), BATCH):
        client.log_batch(job.id, metrics=points[first : first + BATCH], synchronous=True)
