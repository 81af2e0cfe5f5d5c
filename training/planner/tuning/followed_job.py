"""One job of the queue, from its submission to its end, for a command in the foreground."""

import time
from collections.abc import Callable
from typing import Final

from scalebook.training.base import FailureClass, Workspace, failures
from scalebook.training.jobs import ENDED, JobFolder, Result, SupervisorKeeper, job_requests, waiting_reasons

LOOK_EVERY_S: Final = 0.05
REASONS_EVERY_S: Final = 2.0
STOP_DEADLINE_S: Final = 60.0
"""Longest wait for a job that was asked to stop; the supervisor ends by force one that does not react, well before."""

SILENCE_S: Final = 1800.0
"""Time without any change after which a job is given up. The supervisor's own deadlines are shorter."""

INTERRUPTED: Final = 130

Show = Callable[[JobFolder, str], None]
"""Called now and then with a job, and why it waits ("" if it does not)."""


def follow(workspace: Workspace, job: JobFolder, show: Show) -> Result:
    """Wait for a job's end, and return its result. Ctrl-C, or what `show` raises, stops the job and is raised again."""
    try:
        _watch(workspace, job, show)
    except BaseException:
        _stop(job)
        raise
    result = job.outcome()
    if result is not None:
        return result
    failure, cause = FailureClass.TIMED_OUT, f"nothing happened for {SILENCE_S:g} s"
    return Result("failed", time.time(), failure.value, cause, failures.ADVICE[failure])


def _watch(workspace: Workspace, job: JobFolder, show: Show) -> None:
    reasons_at = moved = time.monotonic()
    keeper = SupervisorKeeper(workspace)
    seen: object = None
    reason = ""
    while (state := job.state()) not in ENDED:
        now = time.monotonic()
        keeper.has_changed()
        if now - reasons_at > REASONS_EVERY_S:
            reasons_at = now
            reason = waiting_reasons(workspace).get(job.id, "") if state == "waiting" else ""
        show(job, reason if state == "waiting" else "")
        progress = job.progress()
        news = (state, progress.time if progress else 0.0)
        if news != seen:
            seen, moved = news, now
        if now - moved > SILENCE_S:
            job_requests.stop(job, f"after nothing had happened for {SILENCE_S:g} s")
            return
        time.sleep(LOOK_EVERY_S)


def _stop(job: JobFolder) -> None:
    job_requests.stop(job, "by the command that submitted it")
    deadline = time.monotonic() + STOP_DEADLINE_S
    while time.monotonic() < deadline and job.state() not in ENDED:
        time.sleep(LOOK_EVERY_S)
