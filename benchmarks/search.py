"""A search of many short trials: how long it takes beyond the training itself (`python -m benchmarks.search`).

200 trials (`--trials`) of an experiment that trains for about 2 s (`--seconds`, calibrated at the start), as many side
by side as there are cores, through the same supervisor, driver, study and MLflow store as in the browser. Printed are
the whole time against the sum of the trials' own training over the cores, what a trial takes beyond its training, and
whether study, MLflow and jobs agree. Seven minutes on two cores.
"""

import argparse
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import waiting
from benchmarks.common import machine
from benchmarks.search_audit import audit
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.job_folder import ENDED
from scalebook.training.jobs.supervisor_handle import hold_supervisor, status
from scalebook.training.search import search_folder as searches
from scalebook.training.search import search_requests
from scalebook.training.search.study.study_reader import read

LOADED_S = 120.0
LONGEST_S = 3600.0
until = partial(waiting.until, deadline_s=LONGEST_S)


def config(epochs: int) -> dict[str, Any]:
    """A small classifier on digits, one process."""
    return {
        "seed_everything": 1,
        "trainer": {"max_epochs": epochs, "accelerator": "cpu"},
        "model": {"class_path": "scalebook.training.zoo.models.MLPClassifier"},
        "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 32}},
        "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.02}},
    }


def calibrated(workspace: Workspace, description: Description, seconds: float) -> int:
    """Epochs that train for about `seconds` while every core does the same."""
    jobs = job_requests.submit(
        workspace, Experiment.read(config(20), description), seeds=range(2 * len(this_machine().cores))
    )
    until(lambda: all(job.state() in ENDED for job in jobs), "the calibration")
    times = [progress.seconds for job in jobs if (progress := job.progress()) is not None]
    return max(1, round(20 * seconds / statistics.median(times)))


def measure(workspace: Workspace, trials: int, seconds: float) -> int:
    """Run the search and print the results; 1 if the records disagree."""
    description = describe(workspace)
    supervisor_handle.ensure(workspace)
    until(lambda: (now := status(workspace)) is not None and now.warm == "ready", "the warm process")
    epochs = calibrated(workspace, description, seconds)
    body = {
        "config": config(epochs),
        "objective": "val/loss",
        "space": {"learning_rate": {"log_uniform": [0.001, 0.05]}, "optimizer.momentum": {"uniform": [0.0, 0.9]}},
        "trials": trials,
    }
    folder = search_requests.start(workspace, body, None, name="many short trials", description=description)
    until(lambda: folder.state() in searches.ENDED, "the search")
    request = folder.request()
    records = read(request.storage, request.study, folder.spec(description))
    jobs = [job for job in job_requests.all_jobs(workspace) if job.request().trial is not None]
    spans = [(start.started, result.ended) for job in jobs if (start := job.started()) and (result := job.result())]
    trained = [progress.seconds for job in jobs if (progress := job.progress()) is not None]
    whole = max(end for _, end in spans) - min(begin for begin, _ in spans)
    ideal = sum(trained) / len(this_machine().cores)
    beyond = [end - begin - own for (begin, end), own in zip(spans, trained, strict=True)]
    print(f"{trials} trials of {statistics.median(trained):.2f} s of training ({epochs} epochs), "
          f"{len(this_machine().cores)} side by side: {folder.result()}")  # fmt: skip
    print(f"whole {whole:.1f} s = {whole / ideal:.2f} x (sum of training / cores = {ideal:.1f} s)")
    print(f"a trial's process beyond its training: median {statistics.median(beyond):.2f} s, most {max(beyond):.2f} s")
    print(f"a core's time beyond training, a trial: {(whole - ideal) * len(this_machine().cores) / trials:.2f} s")
    wrong = audit(folder, records)
    print(f"records: {len(records)} trials, {wrong if wrong else 'all agree'}")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=2.0)
    options: Any = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as root:
        workspace = Workspace(Path(root).resolve()).create()
        with hold_supervisor(workspace):
            code = measure(workspace, options.trials, options.seconds)
        until(lambda: supervisor_handle.running(workspace) is None, "the supervisor to leave")
    return code


if __name__ == "__main__":
    sys.exit(main())
