"""Starting jobs through the warm process: keeps one ready, orders jobs from it, and says why that does not work."""

import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scalebook.training.jobs.folder import JobFolder
from scalebook.training.jobs.schedule import Lease, Start
from scalebook.training.supervisor.job_watch import JobLimits
from scalebook.training.supervisor.warm import Order, Report
from scalebook.training.supervisor.warming import PACKAGE, PRELOAD, RUNNER, WarmProcess
from scalebook.training.workspace import Workspace

ATTEMPTS = 3
"""So often the warm process may die on the way, or a job not appear, before the job is failed for it."""
LOAD_DEADLINE_S = 120.0


@dataclass(frozen=True)
class OrderedStart:
    """A job that was asked for and has not claimed its folder yet, `since` a time.monotonic(), s."""

    start: Start
    since: float


class Starter:
    """Owns the warm process. `ordered` jobs hold their devices already; the owner removes those that have appeared."""

    def __init__(
        self,
        workspace: Workspace,
        limits: JobLimits,
        runner: str = RUNNER,
        preload: Sequence[str] = PRELOAD,
        package: Path = PACKAGE,
    ) -> None:
        self.workspace = workspace
        self.limits = limits
        self.ordered: dict[str, OrderedStart] = {}
        self.problem = ""
        """Why no warm process comes up, for people."""
        self._log = workspace.hidden / "supervisor.log"
        self._runner, self._preload, self._package = runner, tuple(preload), package
        self._warm: WarmProcess | None = None
        self._loading_since = self._retry_at = 0.0
        self._failures = 0
        self._attempts: dict[str, int] = {}

    @property
    def state(self) -> str:
        """none, loading or ready."""
        if self._warm is None:
            return "none"
        return "ready" if self._warm.ready else "loading"

    def listen(self, wait_s: float) -> list[Report]:
        """Wait at most so long for reports of the warm process; returns those of jobs that ended."""
        if self._warm is None:
            time.sleep(wait_s)
            return []
        select.select([self._warm.connection], [], [], wait_s)
        found = self._warm.reports()
        for report in found:
            if report.event == "ready":
                self._failures, self.problem = 0, ""
                if report.threads != 1:
                    print(
                        f"scalebook: the warm process has {report.threads} threads; a fork keeps only one", flush=True
                    )
        if self._warm.closed:
            self._lost(self._warm.ready, "ended")
        elif not self._warm.ready and time.monotonic() - self._loading_since > LOAD_DEADLINE_S:
            self._lost(False, f"was not ready after {LOAD_DEADLINE_S:g} s")
        return [report for report in found if report.event == "ended"]

    def prepare(self, fresh: bool) -> bool:
        """Have a warm process; True when it is ready, and, if `fresh`, as new as the package's source files."""
        if self._warm is not None and fresh and self._warm.ready and not self.ordered and self._warm.out_of_date():
            self._warm.close()
            self._warm = None
        if self._warm is None and time.monotonic() >= self._retry_at:
            self._warm = WarmProcess(self._log, self._runner, self._preload, self._package)
            self._loading_since = time.monotonic()
        return self._warm is not None and self._warm.ready

    def order(self, job: JobFolder, start: Start) -> None:
        """Have the job started on the devices of its plan."""
        assert self._warm is not None, "prepare first"
        order = Order(str(job.path), str(self.workspace.root), start.cores, start.gpus)
        if self._warm.order(order):
            self.ordered[job.id] = OrderedStart(start, time.monotonic())

    def leases(self) -> list[Lease]:
        """Of the jobs that are on their way."""
        return [
            Lease(one.start.request.id, one.start.request.title, one.start.cores, one.start.gpus)
            for one in self.ordered.values()
        ]

    def hopeless(self, waiting: Sequence[str]) -> dict[str, str]:
        """Jobs, of those that wait, to give up, with the cause. `waiting` is in order: its first takes the blame."""
        if any(time.monotonic() - one.since > self.limits.start_s for one in self.ordered.values()):
            self._lost(True, f"did not start a run within {self.limits.start_s:g} s")
        found = {name: "no process of it appeared" for name in waiting if self._attempts.get(name, 0) >= ATTEMPTS}
        if self._failures >= ATTEMPTS and waiting:
            self._failures = 0
            found[waiting[0]] = self.problem
        return found

    def close(self) -> None:
        """End the warm process; its jobs go on."""
        if self._warm is not None:
            self._warm.close()
            self._warm = None

    def _lost(self, was_ready: bool, how: str) -> None:
        for name in self.ordered:
            self._attempts[name] = self._attempts.get(name, 0) + 1
        self.ordered.clear()
        self.close()
        if not was_ready:
            self._failures += 1
            self._retry_at = time.monotonic() + self.limits.retry_s
            self.problem = f"the process that starts runs {how}: {_last_line(self._log)}"
        print(f"scalebook: the warm process {how}", flush=True)


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 4096))
        lines = file.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
