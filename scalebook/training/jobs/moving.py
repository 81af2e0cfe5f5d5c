"""Who starts before whom: moving a job that waits."""

from typing import Literal

from scalebook.training.errors import ConfigError
from scalebook.training.jobs.folder import JobFolder, Turn
from scalebook.training.jobs.queue import open_jobs
from scalebook.training.jobs.schedule import in_order
from scalebook.training.workspace import Workspace

Direction = Literal["first", "earlier", "later"]


def move(workspace: Workspace, job: JobFolder, direction: Direction) -> bool:
    """Move a waiting job in the queue: before all others, or past the next one; False where there is none to pass.

    A run passes a run and a trial a trial: trials of a search that stand between two runs stay where they are.
    ConfigError where it does not wait.
    """
    if job.state() != "waiting":
        raise ConfigError(job.id[:12], f"is {job.state()}", "Only a waiting job can be moved.")
    waiting = {job_.id: job_ for job_ in open_jobs(workspace) if job_.state() == "waiting"}
    kind = job.request().trial is None
    queued = in_order(
        [waiting_job.queued() for waiting_job in waiting.values() if (waiting_job.request().trial is None) == kind]
    )
    at = next(index for index, request in enumerate(queued) if request.id == job.id)
    to = {"first": 0, "earlier": at - 1, "later": at + 1}[direction]
    if to == at or not 0 <= to < len(queued):
        return False
    mine, other = queued[at], queued[to]
    if direction == "first":
        job.write(Turn(other.priority, other.created - 1.0))
    else:
        waiting[other.id].write(Turn(mine.priority, mine.created))
        job.write(Turn(other.priority, other.created))
    return True
