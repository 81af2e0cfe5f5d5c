"""Waiting jobs: why they wait, computed by any process from the folders, and moving them in the queue."""

from collections.abc import Sequence
from typing import Literal

from scalebook.training.base import ConfigError, Workspace, trust
from scalebook.training.base.files import disk_problem
from scalebook.training.jobs.executor import configured_executor
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, QueuePlace, State
from scalebook.training.jobs.job_requests import all_jobs, open_jobs
from scalebook.training.jobs.leases import DurationEstimates, Lease, time_left
from scalebook.training.jobs.schedule import STARTS, in_order, plan
from scalebook.training.jobs.supervisor_handle import silence, status

NO_SUPERVISOR = "no supervisor is running"
LOADING = "its devices are free, but the fork server is still loading (about 6 s, only once)"
Direction = Literal["first", "earlier", "later"]


def waiting_reasons(workspace: Workspace) -> dict[str, str]:
    """Job id -> why it waits, in plain words; for a running job that nodes may join, how many it has."""
    states = [(job, job.state()) for job in open_jobs(workspace)]
    jobs = [job for job, state in states if state == "waiting"]
    reasons = {job.id: trust.FOUND for job in jobs if not trust.may_run(workspace, job.path, trust.JOB)}
    waiting = [job.queued() for job in jobs if job.id not in reasons]
    if not waiting and not any(state == "running" and job.request().grows for job, state in states):
        return reasons
    return {**reasons, **_of_queued(workspace, waiting, states)}


def _of_queued(
    workspace: Workspace, waiting: Sequence[JobRequest], states: Sequence[tuple[JobFolder, State]]
) -> dict[str, str]:
    """`states`: of all open jobs."""

    def all_wait(why: str) -> dict[str, str]:
        return dict.fromkeys((request.id for request in waiting), why)

    supervisor = status(workspace)
    if supervisor is None:
        return all_wait(NO_SUPERVISOR)
    if silent := silence(workspace):
        return all_wait(silent)
    if full := disk_problem(workspace.hidden):
        return all_wait(f"waits for disk space: {full}")
    try:
        executor = configured_executor(workspace)
    except ConfigError as error:
        return all_wait(str(error))
    machines = executor.machines()
    if not machines:
        return all_wait(supervisor.problem or executor.without())
    running = [Lease.of(job, started, time_left(job)) for job, state in states if state in ("running", "stopping")
               and (started := job.started()) is not None]  # fmt: skip
    planned = plan(waiting, running, machines, _expected(waiting, all_jobs(workspace))).reasons
    starts = supervisor.problem or (STARTS if supervisor.warm == "ready" else LOADING)
    return {name: starts if reason == STARTS else reason for name, reason in planned.items()}


def _expected(waiting: Sequence[JobRequest], jobs: Sequence[JobFolder]) -> dict[str, float]:
    """How long each will take, by id, where one of its kind has finished."""
    hashes, lasting = {request.config_hash for request in waiting}, DurationEstimates()
    for job in jobs:
        if job.request().config_hash in hashes:
            lasting.add(job)
    return lasting.of(waiting)


def move(workspace: Workspace, job: JobFolder, direction: Direction) -> bool:
    """Move a waiting job in the queue: before all others, or past the next one; False if there is none to pass.

    A run passes a run and a trial a trial: trials between two runs stay where they are. ConfigError if the job is not
    waiting.
    """
    if job.state() != "waiting":
        raise ConfigError(job.id[:12], f"is {job.state()}", "Only a waiting job can be moved.")
    waiting = {job_.id: job_ for job_ in open_jobs(workspace) if job_.state() == "waiting"}
    kind = job.request().trial is None
    queued = in_order(
        [waiting_job.queued() for waiting_job in waiting.values() if (waiting_job.request().trial is None) == kind]
    )
    position = next(index for index, request in enumerate(queued) if request.id == job.id)
    to = {"first": 0, "earlier": position - 1, "later": position + 1}[direction]
    if to == position or not 0 <= to < len(queued):
        return False
    moving, other = queued[position], queued[to]
    if direction == "first":
        job.write(QueuePlace(other.priority, other.created - 1.0))
    else:
        waiting[other.id].write(QueuePlace(moving.priority, moving.created))
        job.write(QueuePlace(other.priority, other.created))
    return True
