"""kill -9 of processes that submit runs: `python -m benchmarks.submit_drills [--kills 40]`.

A process submits runs one after the other and is killed at a random moment, again and again. Then a supervisor starts.
When it has finished, no run in MLflow may be without a job, none may still wait or run, and no half-made folder may be
left. Read the number of disagreements: it must be 0, else the exit code is 1. Takes about a minute.
"""

import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.common import parser, until
from benchmarks.drills import classifier
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.job_folder import ENDED, JobFolder
from scalebook.training.tracking import run_start
from scalebook.training.tracking.run_start import open_store

LONGEST_S = 1.0


def submit_for_ever(workspace: Workspace, experiment: Experiment) -> None:
    while True:
        job_requests.submit(workspace, experiment, seeds=[1, 2], start=False)


def kill_submitters(workspace: Workspace, kills: int) -> int:
    """Returns how many of the kills left something half-made."""
    experiment = Experiment.read(classifier(max_epochs=1), describe(workspace))
    moments, abandoned = random.Random(1), 0
    for _ in range(kills):
        process = multiprocessing.get_context("fork").Process(target=submit_for_ever, args=(workspace, experiment))
        process.start()
        time.sleep(moments.uniform(0.05, LONGEST_S))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        abandoned = len(run_start.abandoned(workspace))
    return abandoned


def told_of(job: JobFolder) -> bool:
    """Whether the job has ended and MLflow knows."""
    return job.state() in ENDED and not job.unrecorded.exists()


def audit(workspace: Workspace) -> list[str]:
    """What is not as promised."""
    client = open_store(workspace)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = {run.info.run_id: run.info.status for run in client.search_runs(experiments, max_results=50_000)}
    jobs = {job.id for job in job_requests.all_jobs(workspace)}
    wrong = [f"run {name} has no job" for name in runs.keys() - jobs]
    wrong += [f"job {name} has no run" for name in jobs - runs.keys()]
    wrong += [f"run {name} says {status}" for name, status in runs.items() if status in ("SCHEDULED", "RUNNING")]
    return wrong + [f"{path} is left" for path in workspace.jobs.glob(".*")]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--kills", type=int, default=40)
    kills = options.parse_args().kills
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder)).create()
        open_store(workspace)
        left = kill_submitters(workspace, kills)
        before = Counter(line.partition(" has ")[2] or "says" for line in audit(workspace))
        for job in job_requests.all_jobs(workspace):
            job.ask_to_stop("not to be run")
        process = supervisor_handle.ensure(workspace)
        try:
            until(lambda: not run_start.abandoned(workspace), "submissions to be withdrawn")
            jobs = job_requests.all_jobs(workspace)
            until(lambda: all(map(told_of, jobs)), "MLflow to be told of the jobs")
        finally:
            process.send(signal.SIGTERM)
        wrong = audit(workspace)
        print(f"{kills} kills, {len(jobs)} jobs")
        print(f"{left} submissions cut in half, {before['no job']} runs without a job")
        print(f"when a supervisor had been there: {len(wrong)} disagreements", *wrong, sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
