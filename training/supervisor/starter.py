"""Starts jobs: orders them from the launcher, keeps track of those under way, and reports why starting fails."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from scalebook.training.jobs.devices import Allocation
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.launcher import Launcher, LauncherLost, ProcessEnded
from scalebook.training.jobs.leases import Lease
from scalebook.training.jobs.schedule import Start
from scalebook.training.supervisor.job_watch import JobLimits

ATTEMPTS: Final = 3
"""How often a start may fail (the launcher dies, or no process appears) before the job fails."""


@dataclass(frozen=True)
class OrderedStart:
    """A job that was ordered and has not claimed its folder yet; `since` is a time.monotonic(), s."""

    lease: Lease
    since: float


class Starter:
    """Owns the launcher. `ordered` jobs already hold their devices; the owner removes those that have appeared."""

    def __init__(self, launcher: Launcher, limits: JobLimits) -> None:
        self.launcher, self.limits = launcher, limits
        self.ordered: dict[str, OrderedStart] = {}
        self.problem = ""
        """Why no job can be started, for people."""
        self._retry_at = 0.0
        self._failures = 0
        self._attempts: dict[str, int] = {}

    @property
    def state(self) -> Literal["none", "loading", "ready"]:
        return self.launcher.state

    def listen(self, wait_s: float) -> list[ProcessEnded]:
        """Wait at most `wait_s` for events of the launcher; returns those of ended jobs."""
        ended: list[ProcessEnded] = []
        for event in self.launcher.events(wait_s):
            if isinstance(event, LauncherLost):
                self._lost(event)
            else:
                ended.append(event)
        if self.launcher.state == "ready":
            self._failures, self.problem = 0, ""
        return ended

    def prepare(self, fresh: bool) -> bool:
        """Prepare the launcher; True when it is ready and, if `fresh`, has the package's present sources."""
        if self.launcher.state == "none" and time.monotonic() < self._retry_at:
            return False
        return self.launcher.prepare(fresh and not self.ordered)

    def order(self, job: JobFolder, start: Start) -> None:
        """Order the job on its planned devices."""
        if self.launcher.start(job, start.lease):
            self.ordered[job.id] = OrderedStart(start.lease, time.monotonic())

    def note_started(self, name: str) -> bool:
        """Note that the job has started; returns whether it was ordered here, also from a launcher lost since then."""
        return self.ordered.pop(name, None) is not None or name in self._attempts

    def join(self, job: JobFolder, lent: Allocation) -> None:
        """Add another node to a running job."""
        self.launcher.join(job, lent)

    def leases(self) -> list[Lease]:
        """The leases of the jobs that are being started."""
        return [start.lease for start in self.ordered.values()]

    def hopeless(self, waiting: Sequence[str]) -> dict[str, str]:
        """The waiting jobs to give up, with the cause. `waiting` is in order: its first takes the blame."""
        if any(time.monotonic() - start.since > self.limits.start_s for start in self.ordered.values()):
            print(f"scalebook: a run did not start within {self.limits.start_s:g} s", flush=True)
            self.launcher.close()
            self._lost(LauncherLost(True, ""))
        causes = {name: "no process of it appeared" for name in waiting if self._attempts.get(name, 0) >= ATTEMPTS}
        if self._failures >= ATTEMPTS and waiting:
            self._failures = 0
            causes[waiting[0]] = self.problem
        return causes

    def close(self) -> None:
        """End the launcher; its jobs go on."""
        self.launcher.close()

    def _lost(self, event: LauncherLost) -> None:
        for name in self.ordered:
            self._attempts[name] = self._attempts.get(name, 0) + 1
        self.ordered.clear()
        if not event.ready:
            self._failures += 1
            self._retry_at = time.monotonic() + self.limits.retry_s
            self.problem = event.problem
