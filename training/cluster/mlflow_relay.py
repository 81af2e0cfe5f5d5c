"""Relays to MLflow, here, what jobs on other nodes log: one thread, while they run."""

import threading
import time
import traceback
from typing import TYPE_CHECKING, Final

from scalebook.training.cluster.incoming_files import size_of
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.tracking import names
from scalebook.training.tracking.metric_writer import client_after_fork
from scalebook.training.tracking.spool import LINES, replay, told_so_far

if TYPE_CHECKING:
    from mlflow import MlflowClient

EVERY_S: Final = 0.3
RETRY_S: Final = 2.0


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

    def close(self, deadline_s: float = 10.0) -> None:
        self._leaving.set()
        self._news.set()
        self._thread.join(deadline_s)

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
            uri = job.request().tracking_uri
            if uri not in self._clients:
                self._clients[uri] = client_after_fork(uri)
            before = told_so_far(folder)
            if replay(folder, job.id, self._clients[uri]) or told_so_far(folder) == before:
                return
