"""Relays to MLflow, here, what jobs on other nodes log: one thread, while they run."""

import json
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scalebook.training.base.files import records
from scalebook.training.cluster.incoming_files import size_of
from scalebook.training.jobs import JobFolder
from scalebook.training.tracking import LINES, names, run_start

if TYPE_CHECKING:
    from mlflow import MlflowClient

EVERY_S: Final = 0.3
RETRY_S: Final = 2.0

APPLIED: Final = "applied"
"""File beside the lines, where the store is: how many of their bytes have been replayed."""
LARGEST: Final = 2**22
"""How many bytes of lines are replayed at once."""


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
        if not _tell_store(folder, run_id, client, [json.loads(line) for line in lines]):
            return False
        offset += sum(map(len, lines))
        records.put(folder / APPLIED, str(offset).encode())
    return len(read) < LARGEST and len(complete) == len(read)


def told_so_far(folder: Path) -> int:
    try:
        return int((folder / APPLIED).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _together(lines: Sequence[bytes]) -> Iterable[list[bytes]]:
    """Points one after the other in one call."""
    group: list[bytes] = []
    for line in lines:
        if group and (b'"points"' not in line[:60] or b'"points"' not in group[0][:60] or len(group) == 8):
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _tell_store(folder: Path, run_id: str, client: "MlflowClient", lines: Sequence[Any]) -> bool:
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
            run_start.mark_running(client, run_id, arguments)
        elif call == "params":
            run_start.log_params(client, run_id, arguments)
        elif call == "terminated":
            run_start.terminated(client, run_id, *arguments)
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


class MlflowRelay:
    """Give it jobs by `watch`; `is_complete` says whether the store has everything of a job that has arrived."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobFolder] = {}
        self._clients: dict[str, MlflowClient] = {}
        self._leaving = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._work, name="recording", daemon=True)
        self._thread.start()

    def watch(self, job: JobFolder) -> None:
        self._jobs[job.id] = job

    def is_complete(self, job: JobFolder) -> bool:
        """Whether everything of this job has been relayed; if not, the thread continues at once."""
        if told_so_far(job.path / names.SPOOL) >= size_of(job.path / names.SPOOL / LINES):
            return True
        self._news.set()
        return False

    def forget_job(self, job: JobFolder) -> None:
        self._jobs.pop(job.id, None)

    def close(self) -> None:
        self._leaving.set()
        self._news.set()
        self._thread.join(10.0)

    def _work(self) -> None:
        while not self._leaving.is_set():
            pause = EVERY_S
            for job in list(self._jobs.values()):
                try:
                    self._tell(job)
                except Exception:  # noqa: BLE001 - whatever a store says, one run must not keep the others from it
                    traceback.print_exc()
                    pause = RETRY_S
            self._news.wait(pause)
            self._news.clear()
            if pause == RETRY_S:
                time.sleep(EVERY_S)

    def _tell(self, job: JobFolder) -> None:
        folder = job.path / names.SPOOL
        while told_so_far(folder) < size_of(folder / LINES) and not self._leaving.is_set():
            uri = job.tracking_uri()
            if uri not in self._clients:
                self._clients[uri] = run_start.client_after_fork(uri)
            before = told_so_far(folder)
            if replay(folder, job.id, self._clients[uri]) or told_so_far(folder) == before:
                return
