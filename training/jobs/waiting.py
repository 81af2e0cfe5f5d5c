"""Why each waiting job waits, said at any time by anybody who can read the folders."""

from training.jobs.devices import inventory
from training.jobs.folder import JobFolder, Started
from training.jobs.lock import status
from training.jobs.queue import all_jobs
from training.jobs.schedule import STARTS, Lease, plan
from training.room import lacking
from training.workspace import Workspace

NO_SUPERVISOR = "no supervisor is running"
LOADING = "its devices are free; the process that starts runs is loading (about 6 s, once)"


def waiting_reasons(workspace: Workspace) -> dict[str, str]:
    """Job id -> reason in plain words, for every job that waits."""
    states = [(job, job.state()) for job in all_jobs(workspace) if not (job.path / "result.json").exists()]
    waiting = [job.request() for job, state in states if state == "waiting"]
    if not waiting:
        return {}
    supervisor = status(workspace)
    if supervisor is None:
        return {request.id: NO_SUPERVISOR for request in waiting}
    if full := lacking(workspace.hidden):
        return {request.id: f"waits for room: {full}" for request in waiting}
    running = [_lease(job, started) for job, state in states if state in ("running", "stopping")
               and (started := job.started()) is not None]  # fmt: skip
    reasons = plan(waiting, running, inventory()).reasons
    starts = supervisor.problem or (STARTS if supervisor.warm == "ready" else LOADING)
    return {name: starts if reason == STARTS else reason for name, reason in reasons.items()}


def _lease(job: JobFolder, started: Started) -> Lease:
    progress = job.progress()
    left = None if progress is None else progress.left_s
    return Lease(job.id, job.request().title, started.cores, started.gpus, left)
