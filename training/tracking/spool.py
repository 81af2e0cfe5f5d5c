"""The spool of a job on another node: it writes its calls to MLflow into a file, and they are replayed where the store
is.

It has the few methods of MLflow's client that a run uses. Each line is appended in one write and never changed; files
are copied, so that a later change does no harm. `replay` may send a line twice: MLflow keeps one point.
"""

import json
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scalebook.training.base.files import records

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

SPOOL: Final = "SCALEBOOK_SPOOL"
"""The environment variable with the spool's folder; a job's process on another node has it."""
LINES: Final = "lines.jsonl"
FILES: Final = "files"
APPLIED: Final = "applied"
"""File beside the lines, where the store is: how many of their bytes have been replayed."""
LARGEST: Final = 2**22
"""How many bytes of lines are replayed at once."""
BEGIN: Final = (
    "UPDATE runs SET start_time = CASE status WHEN 'SCHEDULED' THEN :at ELSE start_time END, status = 'RUNNING' "
    "WHERE run_uuid = :run AND lifecycle_stage = 'active'"
)


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
        assert not params, "a run's parameters are recorded when it is created"
        if metrics:
            points = [(metric.key, metric.value, metric.timestamp, metric.step) for metric in metrics]
            self._tell(run_id, "points", points)
        if tags:
            self._tell(run_id, "tags", [(tag.key, str(tag.value)) for tag in tags])

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


def mark_running(client: "MlflowClient | Spool", run_id: str, started: float) -> None:
    """Mark a run as RUNNING. If it was SCHEDULED, its start time becomes `started` (unix s), so that the duration in
    MLflow does not include the wait; a resumed search keeps its first start.

    MLflow's API cannot change a run's start time, so this changes its database; behind another server the wait stays
    part of the duration.
    """
    if isinstance(client, Spool):
        client.begun(run_id, started)
        return
    engine: Any = getattr(client._tracking_client.store, "engine", None)
    if engine is None:
        client.update_run(run_id, status="RUNNING")
        return
    from sqlalchemy import text

    parameters = {"run": run_id, "at": int(started * 1000)}
    with engine.begin() as connection:
        result = connection.execute(text(BEGIN), parameters)
    if not result.rowcount:
        client.update_run(run_id, status="RUNNING")  # which says why it cannot be


def replay(folder: Path, run_id: str, client: "MlflowClient") -> bool:
    """Send the store the lines that have arrived since the last call; False if there are more, or a file has not
    arrived yet.

    Raises MLflow's errors; the next call goes on from the line that failed.
    """
    offset = told_so_far(folder)
    try:
        with (folder / LINES).open("rb") as file:
            file.seek(offset)
            read = file.read(LARGEST)
    except FileNotFoundError:
        return True
    complete = read[: read.rfind(b"\n") + 1]
    for lines in _together(complete.splitlines(keepends=True)):
        if not _tell(folder, run_id, client, [json.loads(line) for line in lines]):
            return False
        offset += sum(map(len, lines))
        records.put(folder / APPLIED, str(offset).encode())
    return len(read) < LARGEST and len(complete) == len(read)


def told_so_far(folder: Path) -> int:
    try:
        return int((folder / APPLIED).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _together(lines: Sequence[bytes], most: int = 8) -> Iterable[list[bytes]]:
    """Points one after the other in one call."""
    group: list[bytes] = []
    for line in lines:
        if group and (b'"points"' not in line[:60] or b'"points"' not in group[0][:60] or len(group) == most):
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _tell(folder: Path, run_id: str, client: "MlflowClient", lines: Sequence[Any]) -> bool:
    """Lines of one kind, of this run; what names another one is passed over."""
    from mlflow.entities import Metric, RunTag

    lines = [line for line in lines if line[0] == run_id]
    for call, arguments in (lines[0][1:],) if lines and lines[0][1] != "points" else ():
        if call == "tag":
            client.set_tag(run_id, *arguments)
        elif call == "tags":
            client.log_batch(run_id, tags=[RunTag(*tag) for tag in arguments], synchronous=True)
        elif call == "status":
            client.update_run(run_id, status=arguments)
        elif call == "begun":
            mark_running(client, run_id, arguments)
        elif call == "terminated":
            client.set_terminated(run_id, *arguments)
        elif call == "artifact":
            file = (folder / arguments[0]).resolve()
            if not file.is_relative_to(folder.resolve()) or not file.is_file():
                return False
            client.log_artifact(run_id, str(file), arguments[1])
    if lines and lines[0][1] == "points":
        points = [Metric(*point) for line in lines for point in line[2]]
        for first in range(0, len(points), 1000):
            client.log_batch(run_id, metrics=points[first : first + 1000], synchronous=True)
    return True
