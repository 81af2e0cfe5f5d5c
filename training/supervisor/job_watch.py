"""The supervisor's watch over one running job: whether it lives, whether it must be ended, and clearing up after it."""

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from scalebook.training.base import FailureClass
from scalebook.training.jobs import JobFolder, JobStart, Progress, Standstill, UsageMeter, is_short


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


LOOK_S: Final = 2.0
STILL_S: Final = 60.0
"""After so long without computing a process counts as still, s. One that is suspended counts at once."""
CPU_S: Final = 0.2
"""So much computing is a sign of life."""


class StandstillWatch:
    """Records which processes of a running job are suspended, or have computed nothing for STILL_S, since when. The
    executor must know the processes, so they are on this machine."""

    def __init__(self, job: JobFolder, started: JobStart) -> None:
        self._job, self._started = job, started
        self._looked = -math.inf
        self._written: str | None = None
        self._computed: dict[int, tuple[float, float]] = {}
        """By pid: CPU time, s, and when it was last seen to have grown."""
        self._suspended: dict[int, float] = {}
        """By pid: since when."""
        self._progress: tuple[Progress | None, float] = None, -math.inf

    def look(self, now: float) -> None:
        """`now` is time.monotonic(), s."""
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        words, since = self._found(now)
        if words == self._written:
            return
        with suppress(OSError):  # a full disk; tried again at the next look
            if words:
                self._job.write(Standstill(words, time.time() - (now - since)))
            else:
                self._job.standstill_file.unlink(missing_ok=True)
            self._written = words

    def _found(self, now: float) -> tuple[str, float]:
        """What stands still, and since when; "" if nothing does."""
        names, workers, suspended = self._processes(now)
        if suspended:
            each = (f"{names[pid]} (process {pid}) is suspended; `kill -CONT {pid}` resumes it" for pid in suspended)
            return "; ".join(each), min(self._suspended[pid] for pid in suspended)
        progress = self._job.progress()
        if progress != self._progress[0] or self._progress[1] == -math.inf:
            self._progress = progress, now
        if progress is None or progress.phase != "training":
            return "", now
        still = [pid for pid in workers if now - self._computed[pid][1] >= STILL_S]
        since = min((self._computed[pid][1] for pid in still), default=now)
        if still and len(still) < len(workers):
            return " and ".join(f"{names[pid]} (process {pid})" for pid in still) + " has computed nothing", since
        if still and now - self._progress[1] >= STILL_S:
            return "the run has made no update, and none of its processes has computed anything", since
        return "", now

    def _processes(self, now: float) -> tuple[dict[int, str], list[int], list[int]]:
        """The names of all processes, those that train, and those that are suspended."""
        names, workers, suspended = dict[int, str](), list[int](), list[int]()
        pids = self._started.executor.processes(self._started.handle)
        for pid in pids:
            try:
                process = psutil.Process(pid)
                with process.oneshot():
                    name, parent, status = process.name(), process.ppid(), process.status()
                    cpu_s = sum(process.cpu_times()[:2])
            except psutil.Error:  # it has just ended
                continue
            names[pid] = "its main process" if pid == pids[0] else name
            if parent == pids[0] and name.startswith("worker"):
                workers.append(pid)
            before = self._computed.get(pid)
            if before is None or cpu_s - before[0] > CPU_S:
                self._computed[pid] = cpu_s, now
            if status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
                suspended.append(pid)
                self._suspended.setdefault(pid, now)
            else:
                self._suspended.pop(pid, None)
        return names, workers or [pid for pid in pids[:1] if pid in names], suspended


class JobWatch:
    """The watch over a started job. Call `poll` at every turn; when `over` is true, nothing of the job is left.

    Times are on the monotonic clock, when something was seen here: a file's time is on a wall clock, which may be set.
    """

    def __init__(self, job: JobFolder, started: JobStart, limits: JobLimits) -> None:
        self.job = job
        self.started = started
        self.limits = limits
        self.meter = UsageMeter(job, started)
        self._standstill = StandstillWatch(job, started)
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
            return
        self._standstill.look(now)
        if self.doomed or self.timed_out or self._stuck(now):
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
            self.timed_out += f"; the run was {progress.phase}, after {progress.updates} updates"
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
