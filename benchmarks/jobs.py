"""What starting and watching jobs costs: `python -m benchmarks.jobs` (about a minute).

With the real supervisor and fork server and the shipped classifier on digits, it measures: from `submit` to the first
line of the log, to the first progress, to the first loss in MLflow; size and idle CPU of the processes; and the time of
a page's queries, with 1,000 jobs in the workspace. Prints one table.
"""

import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from scalebook.training.base.processes import ProcessId, alive, send
from scalebook.training.base.trust import JOB, sign
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, JobStart, Result
from scalebook.training.jobs.supervisor_handle import status
from scalebook.training.jobs.waiting_jobs import waiting_reasons
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import open_store

RUNS = 5
MANY = 1000
DEADLINE_S = 120.0
CONFIG: dict[str, Any] = {
    "trainer": {"max_epochs": 3, "accelerator": "cpu"},
    "model": {"class_path": "scalebook.training.zoo.models.ConvClassifier"},
    "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 64}},
}


def until(condition: Callable[[], Any], every_s: float = 0.002) -> float:
    """Wait; returns time.monotonic() when the condition first holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a step of the benchmark did not happen")
        time.sleep(every_s)
    return time.monotonic()


def seconds(action: Callable[[], Any]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder).resolve()).create()
        rows: list[tuple[str, Any]] = [
            ("first use of the store, MLflow's import and tables included", seconds(lambda: open_store(workspace)))
        ]
        rows.append(("describe, not in the cache", seconds(lambda: describe(workspace))))
        with supervisor_handle.hold_supervisor(workspace):
            process = supervisor_handle.ensure(workspace)
            try:
                rows += _processes(workspace, process)
                rows += _starts(workspace)
            finally:
                send(process, signal.SIGTERM)
                until(lambda: not alive(process))
        rows += _questions(workspace)
    print(f"| {'what':66} | {'':>9} |\n|{'-' * 68}|{'-' * 11}|")
    for name, value in rows:
        print(f"| {name:66} | {value if isinstance(value, str) else f'{value * 1000:.0f} ms':>9} |")


def _processes(workspace: Workspace, process: ProcessId) -> list[tuple[str, Any]]:
    loaded = seconds(lambda: until(lambda: (now := status(workspace)) and now.warm == "ready"))
    own = psutil.Process(process.pid)
    (warm,) = own.children()
    before = sum(own.cpu_times()[:2])
    time.sleep(5.0)
    return [
        ("warm process, loading", loaded),
        ("warm process, resident", f"{warm.memory_info().rss / 2**20:.0f} MiB"),
        ("warm process, threads", str(warm.num_threads())),
        ("supervisor, resident", f"{own.memory_info().rss / 2**20:.0f} MiB"),
        ("supervisor, CPU when idle", f"{(sum(own.cpu_times()[:2]) - before) / 5.0:.1%}"),
    ]


def _starts(workspace: Workspace) -> list[tuple[str, Any]]:
    client, description = open_store(workspace), describe(workspace)
    times: dict[str, list[float]] = {}

    def once() -> None:
        began, loss = time.monotonic(), names.TRAIN_LOSS
        (job,) = job_requests.submit(workspace, Experiment.read(CONFIG, description), seeds=[1])
        times.setdefault("submit of one run returns", []).append(time.monotonic() - began)
        for what, condition in (
            ("from submit to the first line of the log", lambda: job.log.exists() and job.log.stat().st_size),
            ("from submit to the first progress", job.progress),
            (
                "from submit to the first train/loss in MLflow",
                lambda: client.get_metric_history(job.id, loss),
            ),
            ("from submit to the result (3 epochs, 69 updates)", job.result),
        ):
            times.setdefault(what, []).append(until(condition) - began)
        result = job.result()
        assert result is not None
        assert result.status == "finished", job.tail()

    for _ in range(RUNS):
        once()
    return [(f"{what}, median of {RUNS}", statistics.median(seconds)) for what, seconds in times.items()]


def _questions(workspace: Workspace) -> list[tuple[str, Any]]:
    for number in range(MANY):
        folder = JobFolder(workspace.jobs / f"{number:032x}")
        folder.path.mkdir()
        folder.write(JobRequest(folder.id, float(number), "e", "", number, 1))
        folder.config.touch()
        sign(folder.path, folder.id, JOB)
        if number >= 10:
            folder.write(JobStart(LocalHandle(ProcessId(1, 0, "")), float(number)))
            folder.write(Result("finished", float(number)))
    first, again = seconds(lambda: waiting_reasons(workspace)), seconds(lambda: waiting_reasons(workspace))
    return [(f"waiting_reasons, {MANY} jobs, first time", first), (f"waiting_reasons, {MANY} jobs, again", again)]


if __name__ == "__main__":
    main()
