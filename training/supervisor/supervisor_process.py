"""The supervisor: one small process per workspace that starts jobs in order, watches them, and records the end of those
that die.

It outlives the browser and the Streamlit server, imports neither torch nor MLflow, and holds no state beyond the job
folders: if it is killed, the next `ensure` starts another, which adopts what runs.
"""

import argparse
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from scalebook.training.base.files.lossy_output import forgive
from scalebook.training.base.files.records import BrokenRecord
from scalebook.training.base.safe_path import HOME
from scalebook.training.base.trust import JOB, may_run
from scalebook.training.base.workspace import OWNER_ONLY, Workspace
from scalebook.training.jobs.executors import configured_executor
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.local.local_launcher import PRELOAD, RUNNER
from scalebook.training.jobs.process import adopt_orphans
from scalebook.training.jobs.supervisor_handle import SupervisorLock
from scalebook.training.supervisor.job_watch import JobLimits
from scalebook.training.supervisor.search_drivers import DRIVER, any_open
from scalebook.training.supervisor.supervisor_loop import SupervisorLoop


def supervise(
    workspace: Workspace,
    limits: JobLimits,
    runner: str = RUNNER,
    preload: tuple[str, ...] = PRELOAD,
    driver: str = DRIVER,
) -> int:
    """Run the supervisor until there is nothing to do, or a SIGTERM or SIGINT; jobs go on. Returns 1 if another one
    runs."""
    lock = SupervisorLock(workspace)
    leaving = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.set())
    adopt_orphans()
    os.chdir(HOME)  # nothing that this starts begins in a folder of notebooks
    while True:
        if not lock.acquire():
            return 1
        turns = SupervisorLoop(lock, limits, configured_executor(workspace), runner, preload, driver)
        try:
            while not leaving.is_set() and not turns.idle():
                turns.run_once()
        finally:
            turns.close()
            lock.release()
        # a job or search that came after the last look found the lock still held, and relies on this
        if leaving.is_set() or not (_any_waiting(workspace) or any_open(workspace)):
            return 0


def _any_waiting(workspace: Workspace) -> bool:
    return any(_waits(JobFolder(path)) and may_run(workspace, path, JOB) for path in workspace.jobs.glob("[!.]*"))


def _waits(job: JobFolder) -> bool:
    try:
        job.request()
    except (OSError, BrokenRecord):
        return False
    return job.state() == "waiting"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scalebook.training.supervisor")
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--runner", default=RUNNER, help="module:function that runs one job folder")
    parser.add_argument(
        "--preload", default=",".join(PRELOAD), help="modules that the fork server imports, separated by commas"
    )
    parser.add_argument("--driver", default=DRIVER, help="module that drives one search's folder")
    for limit in fields(JobLimits):
        parser.add_argument(f"--{limit.name.replace('_', '-')}", type=float, default=limit.default)
    options: Any = parser.parse_args(argv)
    os.umask(OWNER_ONLY)  # its jobs inherit it
    forgive()
    limits = JobLimits(**{limit.name: getattr(options, limit.name) for limit in fields(JobLimits)})
    workspace = Workspace(options.workspace.resolve())
    supervise(workspace, limits, options.runner, tuple(filter(None, options.preload.split(","))), options.driver)
    return 0
