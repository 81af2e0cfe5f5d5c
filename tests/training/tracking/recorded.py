"""Runs written to a real MLflow store, as the logger writes them, without training."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scalebook.training.tracking import names

if TYPE_CHECKING:
    from mlflow import MlflowClient

FIXED = {names.TAG_STRATEGY: "AsyncPS", names.TAG_RULE: "async", names.TAG_WORKERS: "2"}


def record(
    client: "MlflowClient",
    *,
    notebook: str = "page.md",
    cell: str = "one",
    config_hash: str = "0" * 12,
    seed: int = 1,
    values: Sequence[float] = (),
    metric: str = "val/loss",
    status: str = "FINISHED",
    tags: dict[str, str] | None = None,
    extra: dict[str, float] | None = None,
    start: int = 0,
) -> str:
    """One run whose `metric` has `values` at updates 10, 20 ...; 32 samples and 0.1 s an update. Returns its id."""
    from mlflow.entities import Metric

    told = {
        names.TAG_NOTEBOOK: notebook,
        names.TAG_CELL: cell,
        names.TAG_CONFIG_HASH: config_hash,
        names.TAG_SEED: str(seed),
        names.TAG_BATCH_PER_WORKER: "16",
        names.TAG_BATCH_GLOBAL: "32",
        names.TAG_LR_ASKED: "0.001",
        **FIXED,
        **(tags or {}),
    }
    run = client.create_run("0", start_time=start, tags=told, run_name=f"{cell} seed {seed}")
    points = []
    for number, value in enumerate(values, start=1):
        at = 10 * number
        for name, one in ((metric, value), (names.UPDATES, at), (names.SAMPLES, 32 * at), (names.SECONDS, at / 10)):
            points.append(Metric(name, float(one), 0, at))
    points += [Metric(name, value, 0, 10 * len(values)) for name, value in (extra or {}).items()]
    client.log_batch(run.info.run_id, metrics=points)
    if status in ("SCHEDULED", "RUNNING"):
        client.update_run(run.info.run_id, status=status)
    else:
        client.set_terminated(run.info.run_id, status, end_time=start + 1000)
    return str(run.info.run_id)
