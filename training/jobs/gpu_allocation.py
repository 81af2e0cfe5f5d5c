"""Who gets a GPU is decided when a run notes what it takes: under one lock, by what all runs have noted until then.

A run in the foreground chooses and notes in one go. One of the queue was given its GPUs by a plan that is some
milliseconds old; its process looks once more before it begins, and goes back into the queue where another has come
first.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import locks
from scalebook.training.base.files.records import BrokenRecord
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, JobStart, Result
from scalebook.training.jobs.leases import ROUNDING, Lease, lent_at_once, running_leases
from scalebook.training.jobs.local.local_executor import LocalHandle

LOCK: Final = "lending.lock"
PATIENCE_S: Final = 30.0
"""Who has the lock reads what other jobs hold, and writes two files."""


class TakenError(Exception):
    """Another run has noted a GPU of this one's, or would not let it look for so long."""


@contextmanager
def in_foreground(workspace: Workspace, request: JobRequest) -> Iterator[JobStart]:
    """This process's record as the run's own, with the devices that it takes; while inside, no other run notes any.
    ConfigError where too few are free."""
    try:
        with noting(workspace):
            lent = lent_at_once(request, this_machine(), running_allocations(workspace))
            me = LocalHandle.of_this_process(leads_session=False)
            yield JobStart(me, time.time(), lent.cores, lent.gpus, inline=True)
    except TakenError as error:
        raise ConfigError("fit", f"cannot begin: {error}", "Stop that run, or try again.") from error


@contextmanager
def noting(workspace: Workspace) -> Iterator[None]:
    """While inside, no other run notes what it takes. TakenError where another stays inside."""
    handle = locks.opened(workspace.hidden / LOCK)
    try:
        if not locks.acquired(handle, PATIENCE_S):
            raise TakenError(f"another run that is starting holds {LOCK} for more than {PATIENCE_S:g} s")
        yield
    finally:
        os.close(handle)


def running_allocations(workspace: Workspace) -> list[Lease]:
    """What runs of this workspace hold by now. Of those that have ended, which may be thousands, nothing is read."""
    leases = []
    for path in workspace.jobs.glob(f"[!.]*/{JobFolder.FILES[JobStart]}"):
        if not path.parent.is_symlink() and not path.with_name(JobFolder.FILES[Result]).exists():
            with suppress(FileNotFoundError, BrokenRecord):  # deleted meanwhile; or a record that its own page names
                leases += running_leases([JobFolder(path.parent)])
    return leases


def claim(workspace: Workspace, job: JobFolder, started: JobStart) -> bool:
    """As `JobFolder.claim`. TakenError where another run holds a GPU, or too much of one, by now."""
    if not started.gpus:
        return job.claim(started)
    with noting(workspace):
        others = [lease for lease in running_allocations(workspace) if lease.id != job.id]
        for uuid in started.gpus:
            shares = [lease.share for lease in others if uuid in lease.gpus]
            if sum(shares) + job.request().gpu_share > 1 + ROUNDING:
                raise TakenError(f"{uuid} is another run's by now")
        return job.claim(started)
