"""Who gets a GPU is decided under one lock, when a run records what it takes: by what all runs have recorded so far.

A run in the foreground chooses and records in one step. A run of the queue gets its GPUs from a plan that is some
milliseconds old; its process checks once more before it starts, and goes back into the queue if another run came first.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from scalebook.training.base import ConfigError, Workspace
from scalebook.training.base.files import BrokenRecord, locks
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, JobStart, Result
from scalebook.training.jobs.leases import ROUNDING, Lease, lent_at_once, running_leases

LOCK: Final = "lending.lock"
PATIENCE_S: Final = 30.0
"""The lock's holder reads what other jobs hold, and writes two files."""


class TakenError(Exception):
    """Another run has taken a GPU of this one, or has held the lock for too long."""


@contextmanager
def in_foreground(workspace: Workspace, request: JobRequest) -> Iterator[JobStart]:
    """Yield the record of this process as the run's, with the devices that it takes; meanwhile no other run can take
    any. ConfigError if too few are free."""
    try:
        with noting(workspace):
            lent = lent_at_once(request, this_machine(), running_allocations(workspace))
            me = LocalHandle.of_this_process(leads_session=False)
            yield JobStart(me, time.time(), lent.cores, lent.gpus, inline=True)
    except TakenError as error:
        raise ConfigError("fit", f"cannot begin: {error}", "Stop that run, or try again.") from error


@contextmanager
def noting(workspace: Workspace) -> Iterator[None]:
    """Hold the lock, so that no other run records what it takes. TakenError if another run does not release it."""
    handle = locks.opened(workspace.hidden / LOCK)
    try:
        if not locks.acquired(handle, PATIENCE_S):
            raise TakenError(f"another run that is starting has held {LOCK} for more than {PATIENCE_S:g} s")
        yield
    finally:
        os.close(handle)


def running_allocations(workspace: Workspace) -> list[Lease]:
    """What the runs of this workspace hold now. It reads nothing of ended runs, which may be thousands."""
    leases = []
    for path in workspace.jobs.glob(f"[!.]*/{JobFolder.FILES[JobStart]}"):
        if not path.parent.is_symlink() and not path.with_name(JobFolder.FILES[Result]).exists():
            with suppress(FileNotFoundError, BrokenRecord):  # deleted meanwhile; or a record that its own page names
                leases += running_leases([JobFolder(path.parent)])
    return leases


def claim(workspace: Workspace, job: JobFolder, started: JobStart) -> bool:
    """Like `JobFolder.claim`, with TakenError if another run has taken one of the GPUs, or too much of one,
    meanwhile."""
    if not started.gpus:
        return job.claim(started)
    with noting(workspace):
        others = [lease for lease in running_allocations(workspace) if lease.id != job.id]
        for uuid in started.gpus:
            shares = [lease.share for lease in others if uuid in lease.gpus]
            if sum(shares) + job.request().gpu_share > 1 + ROUNDING:
                raise TakenError(f"another run has taken {uuid} in the meantime")
        return job.claim(started)
