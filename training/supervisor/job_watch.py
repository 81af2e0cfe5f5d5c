"""The supervisor's watch over one running job: whether it lives, whether it must be ended, and clearing up after it."""

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scalebook.training.base.failures import FailureClass
from scalebook.training.jobs.job_folder import JobFolder, JobStart
from scalebook.training.jobs.job_nodes import is_short
from scalebook.training.jobs.usage import UsageMeter


@dataclass(frozen=True)
class JobLimits:
    """Time limits, s."""

    poll_s: float = 0.1
    grace_s: float = 10.0
    """From the stop file to SIGTERM, and from SIGTERM to SIGKILL."""
    stall_s: float = 600.0
    """After so long without a change of `progress.json` or of the log, a job counts as stuck."""
    start_s: float = 30.0
    """From the order until the job's process claims its folder."""
    linger_s: float = 30.0
    """How long the supervisor stays without a job and an owner."""
    retry_s: float = 5.0
    """Between attempts to start a fork server that dies, or to reach an MLflow store that does not answer."""


class JobWatch:
    """The watch over a started job. Call `poll` at every turn; when `over` is true, nothing of the job is left.

    Times are on the monotonic clock, when something was seen here: a file's time is on a wall clock, which may be set.
    """

    def __init__(self, job: JobFolder, started: JobStart, limits: JobLimits) -> None:
        self.job = job
        self.started = started
        self.limits = limits
        self.meter = UsageMeter(job, started)
        self.timed_out = ""
        """Why the watchdog ended it, if it did."""
        self.doomed = ""
        """Why it was ended before it began to train, on several nodes."""
        request = job.stop_request()
        self.signals: list[str] = [] if request is None else [*request.sent]
        """What it was sent, in order, by a supervisor before this one too."""
        self.died: float | None = None
        """When its main process was first seen dead."""
        self.ended = 0.0
        """The same in unix time, s, for the record."""
        self.over = False
        self._checked = self._moved = self._signalled = time.monotonic()
        self._signs: object = None
        self._asked: dict[str, float] = {}

    def poll(self, now: float) -> None:
        """Check the job, and signal it if it must end. `now` is time.monotonic(), s."""
        if not self.started.alive():
            if self.died is None:
                self.died, self.ended = now, time.time()
            self._sweep(now)
        elif self.doomed or self.timed_out or self._stuck(now):
            self._press(now, since=-math.inf)
        elif (since := self._since("result.json", now) or self._since("stop", now)) is not None:
            self._press(now, since=since)  # it was asked to end, or has said that it has ended and does not

    def _press(self, now: float, since: float) -> None:
        """Signal the job, by one level more each time: terminate, then kill."""
        if not self.signals:
            if now - since >= self.limits.grace_s:
                self._signal(now, "SIGTERM")
                self.started.executor.stop(self.started.handle, "terminate")
        elif now - self._signalled >= self.limits.grace_s:
            self._signal(now, "SIGKILL")
            self.started.executor.stop(self.started.handle, "kill")

    def _signal(self, now: float, name: str) -> None:
        """Record the signal before it is sent: the run's own process, and the next supervisor, ask the record who
        ended the run."""
        self._signalled = now
        self.signals.append(name)
        failure = FailureClass.WORKER_LOST if self.doomed else FailureClass.TIMED_OUT if self.timed_out else None
        with suppress(OSError):  # a full disk; the signal must be sent all the same
            if failure is not None:
                self.job.ask_to_stop(self.doomed or self.timed_out, "supervisor", failure)
            self.job.note_sent(name)

    def _stuck(self, now: float) -> bool:
        if now - self._checked < min(1.0, self.limits.stall_s / 4):
            return False
        self._checked = now
        self.started.executor.tidy(self.started.handle)
        progress = self.job.progress()
        if progress is None or progress.phase == "starting":
            needs_all = not self.job.request().grows
            if needs_all or is_short(self.job, self.started):
                self.doomed = self.started.executor.failure_reason(self.started.handle)
        signs = [_stamp(self.job.path / name) for name in ("progress.json", "log.txt")]
        if signs != self._signs:
            self._signs, self._moved = signs, now
        if now - self._moved < self.limits.stall_s:
            return bool(self.doomed)
        self.timed_out = f"no sign of life for {self.limits.stall_s:g} s"
        if progress is not None:
            self.timed_out += f"; it was {progress.phase}, after {progress.updates} updates"
        return True

    def _since(self, name: str, now: float) -> float | None:
        """When the file was first seen; None where it is not there."""
        if not (self.job.path / name).exists():
            self._asked.pop(name, None)
            return None
        return self._asked.setdefault(name, now)

    def _sweep(self, now: float) -> None:
        """After the main process: end what it left behind, look again at the next turn, until nothing is there."""
        assert self.died is not None
        self.over = self.started.executor.clear(self.started.handle) or now - self.died > self.limits.start_s


def _stamp(path: Path) -> tuple[int, int] | None:
    """Another one whenever the file was written."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size
