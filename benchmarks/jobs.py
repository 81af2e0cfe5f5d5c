"""What starting and watching jobs costs, and a search of many short trials: `python -m benchmarks.jobs`.

With the real supervisor, fork server, driver, study and MLflow store. First, with the shipped classifier on digits:
from `submit` to the first line of the log, to the first progress, to the first loss in MLflow; size and idle CPU of the
processes; and the time of a page's queries, with 1,000 jobs in the workspace. Then a search of `--trials` (200) trials
that train for about 2 s each (calibrated at the start), as many side by side as there are cores: read the whole time
over the sum of the trials' own training over the cores, what a trial takes beyond its training, and whether study,
MLflow and jobs agree (else the exit code is 1). Eight minutes on two cores, one of them for the first part.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.common import machine, parser, until
from benchmarks.drills import Scene, classifier, scene
from benchmarks.search_drills import audit, records_of
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.trust import JOB, sign
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import ENDED, JobFolder, JobRequest, JobStart, Result
from scalebook.training.jobs.waiting_jobs import waiting_reasons
from scalebook.training.search import search_folder as searches
from scalebook.training.search import search_requests
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import open_store

RUNS: Final = 5
MANY: Final = 1000
TRIAL_S: Final = 2.0
LONGEST_S: Final = 3600.0
CONV: Final = {"class_path": "scalebook.training.zoo.models.ConvClassifier"}
CONFIG: Final[dict[str, Any]] = {**classifier(max_epochs=3), "model": CONV}


def seconds(action: Callable[[], Any]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def processes(one: Scene) -> list[tuple[str, Any]]:
    own = psutil.Process(one.supervisor().pid)
    (warm,) = own.children()
    before = sum(own.cpu_times()[:2])
    time.sleep(5.0)
    return [
        ("warm process, resident", f"{warm.memory_info().rss / 2**20:.0f} MiB"),
        ("warm process, threads", str(warm.num_threads())),
        ("supervisor, resident", f"{own.memory_info().rss / 2**20:.0f} MiB"),
        ("supervisor, CPU when idle", f"{(sum(own.cpu_times()[:2]) - before) / 5.0:.1%}"),
    ]


def starts(one: Scene) -> list[tuple[str, Any]]:
    client, times = open_store(one.workspace), dict[str, list[float]]()
    for _ in range(RUNS):
        began = time.monotonic()
        job = one.submit(CONFIG)
        times.setdefault("submit of one run returns", []).append(time.monotonic() - began)
        conditions: dict[str, Callable[[], Any]] = {
            "the first line of the log": job.tail,
            "the first progress": job.progress,
            "the first train/loss in MLflow": partial(client.get_metric_history, job.id, names.TRAIN_LOSS),
            "the result (3 epochs, 69 updates)": job.result,
        }
        for what, condition in conditions.items():
            until(condition, what, every_s=0.002)
            times.setdefault(f"from submit to {what}", []).append(time.monotonic() - began)
        assert job.state() == "finished", job.tail()
    return [(f"{what}, median of {RUNS}", statistics.median(values)) for what, values in times.items()]


def queries(workspace: Workspace) -> list[tuple[str, Any]]:
    for number in range(MANY):
        folder = JobFolder(workspace.jobs / f"{number:032x}")
        folder.path.mkdir()
        folder.write(JobRequest(folder.id, float(number), "e", "", number, 1))
        folder.config.touch()
        sign(folder.path, folder.id, JOB)
        if number >= 10:
            folder.write(JobStart(LocalHandle(ProcessId(1, 0, "")), float(number)))
            folder.write(Result("finished", float(number)))
    first, again = (seconds(lambda: waiting_reasons(workspace)) for _ in range(2))
    return [(f"waiting_reasons, {MANY} jobs, first time", first), (f"waiting_reasons, {MANY} jobs, again", again)]


def trial_config(epochs: int) -> dict[str, Any]:
    optimizer = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.02}}
    return {"seed_everything": 1, **classifier(32, max_epochs=epochs), "optimizer": optimizer}


def calibrated(one: Scene, cores: int) -> int:
    """Epochs that train for about TRIAL_S while every core does the same."""
    experiment = Experiment.read(trial_config(20), one.description)
    jobs = job_requests.submit(one.workspace, experiment, seeds=range(2 * cores))
    until(lambda: all(job.state() in ENDED for job in jobs), "the calibration")
    times = [progress.seconds for job in jobs if (progress := job.progress()) is not None]
    return max(1, round(20 * TRIAL_S / statistics.median(times)))


def searched(one: Scene, trials: int) -> list[str]:
    """Run the search and print the results; returns what is wrong in the records."""
    cores = len(this_machine().cores)
    epochs = calibrated(one, cores)
    space = {"learning_rate": {"log_uniform": [0.001, 0.05]}, "optimizer.momentum": {"uniform": [0.0, 0.9]}}
    body = {"config": trial_config(epochs), "objective": "val/loss", "space": space, "trials": trials}
    folder = search_requests.start(one.workspace, body, None, name="many short trials", description=one.description)
    until(lambda: folder.state() in searches.ENDED, "the search", LONGEST_S)
    jobs = [job for job in job_requests.all_jobs(one.workspace) if job.request().trial is not None]
    spans = [(start.started, result.ended) for job in jobs if (start := job.started()) and (result := job.result())]
    trained = [progress.seconds for job in jobs if (progress := job.progress()) is not None]
    whole = max(end for _, end in spans) - min(begin for begin, _ in spans)
    ideal = sum(trained) / cores
    beyond = [end - begin - own for (begin, end), own in zip(spans, trained, strict=True)]
    print(
        f"\n{trials} trials of {statistics.median(trained):.2f} s of training ({epochs} epochs), {cores} side by side"
    )
    print(f"whole {whole:.1f} s = {whole / ideal:.2f} x (sum of training / cores = {ideal:.1f} s)")
    print(f"a trial's process beyond its training: median {statistics.median(beyond):.2f} s, most {max(beyond):.2f} s")
    print(f"a core's time beyond training, a trial: {(whole - ideal) * cores / trials:.2f} s")
    return audit(folder, records_of(folder, one.description))


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--trials", type=int, default=200)
    trials = options.parse_args().trials
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with scene(Path(folder, "searched")) as one:
            rows = [("until the warm process is ready", time.monotonic() - began), *processes(one), *starts(one)]
            wrong = searched(one, trials)
            print(f"records: {wrong or 'all agree'}\n")
        rows += queries(Workspace(Path(folder, "many")).create())
    print(f"| {'what':66} | {'':>9} |\n|{'-' * 68}|{'-' * 11}|")
    for name, value in rows:
        print(f"| {name:66} | {value if isinstance(value, str) else f'{value * 1000:.0f} ms':>9} |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
