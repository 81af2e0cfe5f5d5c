"""Telling MLflow what nobody else will: a helper process at a time, again until it succeeds.

Of jobs that could not say how they ended, and of runs that were begun and never got a job.
"""

import time
from pathlib import Path
from signal import SIGKILL

from scalebook.training.jobs.process import Children, ProcessId, send, start

DEADLINE_S = 120.0
LONGEST_RETRY_S = 60.0


class Recorder:
    """Give it marks, files that stay until MLflow has been told (see `closing.main`), and call `turn`."""

    def __init__(self, retry_s: float, children: Children) -> None:
        self.retry_s, self.children = retry_s, children
        self.pending: set[Path] = set()
        self.failures = 0
        self._helper: ProcessId | None = None
        self._since = 0.0
        """Start of the helper, or earliest time of the next; time.monotonic(), s."""

    @property
    def busy(self) -> bool:
        """Whether it is worth waiting for: something is pending that has not failed again and again."""
        return self._helper is not None or (bool(self.pending) and self.failures < 3)

    def turn(self) -> None:
        now = time.monotonic()
        if self._helper is not None:
            if self.children.take(self._helper.pid) is not None:
                self._take_stock(now)
            elif now - self._since > DEADLINE_S:
                send(self._helper, SIGKILL)
        elif self.pending and now >= self._since:
            marks = sorted(map(str, self.pending))[:200]
            self._helper = start("scalebook.training.supervisor.closing", *marks)
            self._since = now

    def close(self) -> None:
        """End the helper, if one runs; the marks stay for the next supervisor."""
        if self._helper is not None:
            send(self._helper, SIGKILL)

    def _take_stock(self, now: float) -> None:
        self._helper = None
        before = len(self.pending)
        self.pending = {mark for mark in self.pending if mark.exists()}
        self.failures = 0 if len(self.pending) < before else self.failures + 1
        wait = min(self.retry_s * 2**self.failures, LONGEST_RETRY_S) if self.failures else 0.0
        self._since = now + wait
