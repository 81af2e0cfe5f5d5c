"""Tells people that something has ended: in a file that the app reads, and by a separate process as `[notify]` says."""

import json
import time
from dataclasses import asdict
from signal import SIGKILL

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs import ended_jobs
from scalebook.training.jobs.ended_jobs import Ending
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.process import Children, ProcessId, send, start
from scalebook.training.search.search_folder import SearchFolder

DEADLINE_S = 120.0
MOST = 100
"""The most endings that wait for notification; beyond that the oldest are dropped."""


class Notifier:
    """Give it what has ended, and call `poll`: one process at a time notifies of all endings that have come
    meanwhile."""

    def __init__(self, workspace: Workspace, children: Children) -> None:
        self.workspace, self.children = workspace, children
        self._waiting: list[Ending] = []
        self._helper: ProcessId | None = None
        self._since = 0.0

    @property
    def busy(self) -> bool:
        return bool(self._waiting) or self._helper is not None

    def job_ended(self, job: JobFolder) -> None:
        ending = ended_jobs.of_job(job)
        if ending is not None:
            self._take(ending)

    def search_ended(self, search: SearchFolder) -> None:
        result = search.result()
        if result is not None:
            request = search.request()
            seconds = max(0.0, result.ended - request.created)
            self._take(
                Ending(
                    "search", search.id, request.name, result.status, result.ended, seconds, None, result.cause,
                    result.failed,
                )
            )  # fmt: skip

    def _take(self, ending: Ending) -> None:
        self._waiting = [*self._waiting, ending][-MOST:]
        ended_jobs.add(self.workspace, ending)

    def poll(self) -> None:
        if self._helper is not None:
            code = self.children.pop_exit_code(self._helper.pid)
            if code is not None:
                self._helper = None
            elif time.monotonic() - self._since > DEADLINE_S:
                send(self._helper, SIGKILL)
            return
        if not self._waiting:
            return
        ended_jobs, self._waiting = self._waiting, []
        try:
            settings = Workspace(self.workspace.root).settings.notify  # as the file says now
        except ConfigError as error:
            print(f"scalebook: no notification: {error}", flush=True)
            return
        if settings:
            facts = json.dumps([asdict(ending) for ending in ended_jobs])
            self._helper = start("scalebook.training.supervisor.notify_command", str(self.workspace.root), facts)
            self._since = time.monotonic()
