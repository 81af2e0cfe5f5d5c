"""The spool of a job on another node: it writes its calls to MLflow into a file, and they are replayed where the store
is.

It has the few methods of MLflow's client that a run uses. Each line is appended in one write and never changed; files
are copied, so that a later change does no harm. Whoever replays it (`cluster/mlflow_relay.py`) may send a line twice:
MLflow keeps one point.
"""

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mlflow.entities import Metric, Param, RunTag

SPOOL: Final = "SCALEBOOK_SPOOL"
"""The environment variable with the spool's folder; a job's process on another node has it."""
LINES: Final = "lines.jsonl"
FILES: Final = "files"


class Spool:
    """Takes the place of an MlflowClient. Any process and thread of the run may write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / FILES).mkdir(parents=True, exist_ok=True)

    def log_batch(
        self,
        run_id: str,
        metrics: "Sequence[Metric]" = (),
        params: "Sequence[Param]" = (),
        tags: "Sequence[RunTag]" = (),
        synchronous: bool | None = None,
    ) -> None:
        assert not params, "a run's parameters are recorded only when the run is created"
        if metrics:
            points = [(metric.key, metric.value, metric.timestamp, metric.step) for metric in metrics]
            self._tell(run_id, "points", points)
        if tags:
            self._tell(run_id, "tags", [(tag.key, str(tag.value)) for tag in tags])

    def log_params(self, run_id: str, values: Mapping[str, str]) -> None:
        """Parameters that a model has logged, for `log_params` where the store is."""
        self._tell(run_id, "params", dict(values))

    def log_metric(
        self, run_id: str, key: str, value: float, timestamp: int | None = None, step: int | None = None
    ) -> None:
        now = int(time.time() * 1000) if timestamp is None else timestamp
        self._tell(run_id, "points", [(key, float(value), now, step or 0)])

    def set_tag(self, run_id: str, key: str, value: Any) -> None:
        self._tell(run_id, "tag", [key, str(value)])

    def update_run(self, run_id: str, status: str | None = None) -> None:
        self._tell(run_id, "status", status)

    def begun(self, run_id: str, started: float) -> None:
        """Record that the run has started, for `mark_running`."""
        self._tell(run_id, "begun", started)

    def set_terminated(self, run_id: str, status: str | None = None, end_time: int | None = None) -> None:
        self._tell(run_id, "terminated", [status, int(time.time() * 1000) if end_time is None else end_time])

    def log_artifact(self, run_id: str, local_path: str, artifact_path: str | None = None) -> None:
        source = Path(local_path)
        name = f"{time.time_ns()}-{os.getpid()}"
        beside, target = self.folder / FILES / f".{name}", self.folder / FILES / name
        beside.mkdir()
        shutil.copyfile(source, beside / source.name)
        beside.rename(target)
        self._tell(run_id, "artifact", [f"{FILES}/{name}/{source.name}", artifact_path])

    def _tell(self, run_id: str, call: str, arguments: Any) -> None:
        line = json.dumps([run_id, call, arguments]).encode() + b"\n"
        handle = os.open(self.folder / LINES, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.write(handle, line) != len(line):
                raise OSError(f"{self.folder / LINES}: a line could not be written completely")
        finally:
            os.close(handle)
