"""Starts jobs through the fork server: keeps one ready, orders jobs from it, and hears how they end."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final, Literal

from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs.begin_request import RemoteJobContext
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.launcher import Event, Launcher, LauncherLost, ProcessEnded
from scalebook.training.jobs.leases import Lease
from scalebook.training.jobs.local.fork_server import Order
from scalebook.training.jobs.local.fork_server_client import PACKAGE, PRELOAD, RUNNER, ForkServerProcess
from scalebook.training.jobs.process import Children, alive

LOAD_DEADLINE_S: Final = 120.0


class LocalLauncher(Launcher):
    """Owns the fork server. When one dies, or is replaced, its jobs become children of this process."""

    def __init__(
        self,
        workspace: Workspace,
        children: Children,
        runner: str | None = None,
        preload: Sequence[str] | None = None,
        package: Path = PACKAGE,
    ) -> None:
        self.workspace, self.children = workspace, children
        self._log = workspace.hidden / "supervisor.log"
        self._runner, self._preload = runner or RUNNER, tuple(PRELOAD if preload is None else preload)
        self._package = package
        self._warm: ForkServerProcess | None = None
        self._loading_since = 0.0
        self._running: dict[str, JobFolder] = {}
        """Jobs ordered from this fork server whose end it has not reported."""
        self._orphans: dict[str, JobFolder] = {}
        """The same of earlier fork servers."""

    @property
    def state(self) -> Literal["none", "loading", "ready"]:
        if self._warm is None:
            return "none"
        return "ready" if self._warm.ready else "loading"

    def prepare(self, fresh: bool) -> bool:
        if self._warm is not None and fresh and self._warm.ready and self._warm.out_of_date():
            self.close()
        if self._warm is None:
            self._warm = ForkServerProcess(self._log, self._runner, self._preload, self._package)
            self._loading_since = time.monotonic()
        return self._warm.ready

    def start(self, job: JobFolder, lease: Lease, away: RemoteJobContext | None = None) -> bool:
        """Start the job. `away`: for a job of another node's workspace, of which `job` is a copy."""
        assert self._warm is not None, "prepare first"
        root, context = job.path.parents[2], None if away is None else asdict(away)
        ordered = self._warm.order(Order(str(job.path), str(root), lease.cores, lease.gpus, context))
        if ordered:
            self._running[job.id] = job
        return ordered

    def events(self, wait_s: float) -> list[Event]:
        events: list[Event] = []
        if self._warm is None:
            time.sleep(wait_s)
        else:
            wait([self._warm.connection], wait_s)  # not select(2), which knows no descriptor above 1023
            events += self._reports(self._warm)
        return [*events, *self._ended_orphans()]

    def close(self) -> None:
        if self._warm is not None:
            self._warm.close()
            self._warm = None
        self._orphans |= self._running
        self._running = {}

    def _reports(self, warm: ForkServerProcess) -> list[Event]:
        events: list[Event] = []
        for report in warm.reports():
            if report.event == "ended":
                self._running.pop(report.job, None)
                events.append(ProcessEnded(report.job, report.code, report.problem))
            elif report.threads != 1:
                print(f"scalebook: the fork server has {report.threads} threads; a fork keeps only one", flush=True)
        if warm.closed:
            events.append(self._lost(warm.ready, "ended"))
        elif not warm.ready and time.monotonic() - self._loading_since > LOAD_DEADLINE_S:
            events.append(self._lost(False, f"was not ready after {LOAD_DEADLINE_S:g} s"))
        return events

    def _lost(self, ready: bool, how: str) -> LauncherLost:
        self.close()
        problem = f"the process that starts runs {how}: {_last_line(self._log)}"
        print(f"scalebook: the fork server {how}", flush=True)
        return LauncherLost(ready, problem)

    def _ended_orphans(self) -> list[Event]:
        """It looks for dead processes before their exit codes, so that every dead one has been reaped."""
        handles = {name: started.handle for name, job in self._orphans.items() if (started := job.started())}
        dead = {name: handle for name, handle in handles.items() if not alive(handle.process)}
        if dead:
            self.children.reap()
        for name in dead:
            del self._orphans[name]
        codes = {name: self.children.pop_exit_code(handle.process.pid) for name, handle in dead.items()}
        return [ProcessEnded(name, code) for name, code in codes.items() if code is not None]


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 4096))
        lines = file.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
