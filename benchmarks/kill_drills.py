"""kill -9 of every kind of process, in the middle of real training: `python -m benchmarks.kill_drills [--rounds N]`.

Each drill trains a small classifier on digits in two workers, kills one process, and checks the result: the recorded
state and cause, how long that took, whether MLflow is right, and whether any process or shared memory is left. Exits
with 1 if anything is not as promised. Takes about 2 minutes a round.
"""

import argparse
import io
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks import waiting
from scalebook.training.base.processes import ProcessId, alive, descendants, send, session
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.run_lines import RunLines
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.job_folder import MLFLOW_STATUS, JobFolder
from scalebook.training.jobs.supervisor_handle import status
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import open_store

DEADLINE_S = 90.0
until = partial(waiting.until, deadline_s=DEADLINE_S)
ASYNC = {"class_path": "scalebook.training.lightning.AsyncPS", "init_args": {"rule": "async", "workers": 2}}
SYNC_RESTARTED = {
    "class_path": "scalebook.training.lightning.AsyncPS",
    "init_args": {
        "rule": "sync",
        "workers": 2,
        "limits": {"restarts": 1},
        "host": "process",
    },  # one server, forked first
}
PEERS = {"class_path": "scalebook.training.lightning.Peers", "init_args": {"workers": 2}}
SPLIT = {"class_path": "scalebook.training.lightning.ModelParallel", "init_args": {"tensor": 2}}
PAUSE_S = 0.005
"""Between the deaths of two processes that die together."""
SHARED_MEMORY = Path("/dev/shm")


@dataclass
class Range:
    """One workspace for all drills."""

    workspace: Workspace
    description: Description

    def train(self, strategy: Any, epochs: int = 100_000) -> JobFolder:
        """Start a job of two workers and wait until it trains; its end is far away unless `epochs` says otherwise."""
        config = {
            "trainer": {"strategy": strategy, "devices": 2, "accelerator": "cpu", "max_epochs": epochs},
            "model": {"class_path": "scalebook.training.zoo.models.MLPClassifier"},
            "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 64}},
        }
        (job,) = job_requests.submit(self.workspace, Experiment.read(config, self.description), seeds=[1])
        until(lambda: (progress := job.progress()) is not None and progress.updates > 20, f"{job.id} to train")
        return job


def main_of(job: JobFolder) -> ProcessId:
    started = job.started()
    assert started is not None, f"{job.id} has not started"
    return started.handle.process


def kill(process: ProcessId) -> None:
    assert send(process, signal.SIGKILL), f"{process} was dead already"
    until(lambda: not alive(process), f"{process} to die")


def current(range_: Range) -> ProcessId:
    supervisor = supervisor_handle.running(range_.workspace)
    assert supervisor is not None, "no supervisor is running"
    return supervisor


def main_process(range_: Range, strategy: Any) -> str:
    job = range_.train(strategy)
    kill(main_of(job))
    return closed(range_, job, "failed", "killed")


def a_worker(number: int, range_: Range, strategy: Any) -> str:
    job = range_.train(strategy)
    kill(descendants(main_of(job))[number])
    return closed(range_, job, "failed", "worker lost")


def main_process_beside_worker(first: str, pause_s: float, range_: Range, strategy: Any) -> str:
    """Kill worker 0 and the main process within milliseconds, as when memory runs out; `first` is the one to die
    first. Nobody has asked the run to stop."""
    job = range_.train(strategy)
    main, worker = main_of(job), descendants(main_of(job))[0]
    for process in (worker, main) if first == "worker" else (main, worker):
        send(process, signal.SIGKILL)
        time.sleep(pause_s)
    words = closed(range_, job, "failed", ("killed", "worker lost"))
    assert job.stop_request() is None, job.stop_request()
    return words


def worker_main_and_supervisor(range_: Range, strategy: Any) -> str:
    """The same while the supervisor dies, too: the next one has only the folder."""
    job = range_.train(strategy)
    main, worker, supervisor = main_of(job), descendants(main_of(job))[0], current(range_)
    for process in (worker, supervisor, main):
        send(process, signal.SIGKILL)
        time.sleep(PAUSE_S)
    until(lambda: not alive(supervisor), "the supervisor to die")
    supervisor_handle.ensure(range_.workspace)
    words = closed(range_, job, "failed", ("killed", "worker lost"))
    assert job.stop_request() is None, job.stop_request()
    return words


def a_stop_on_request(how: str, range_: Range, strategy: Any) -> str:
    """By a person, or by SIGTERM to the main process, passed on to worker 0."""
    job = range_.train(strategy)
    if how == "SIGTERM":
        send(main_of(job), signal.SIGTERM)
        cause = "stopped on request by SIGTERM to the run"
    else:
        job_requests.stop(job, "in the app")
        cause = "stopped on request in the app"
    words = closed(range_, job, "stopped", None)
    result = job.result()
    assert result is not None
    assert result.cause == cause, result
    return words


def killed_while_it_stops(range_: Range, strategy: Any) -> str:
    """A request, then a death that does not follow from it."""
    job = range_.train(strategy)
    send(main_of(job), signal.SIGSTOP)  # so that it does not stop by itself before it is killed
    job_requests.stop(job, "in the app")
    send(main_of(job), signal.SIGKILL)
    return closed(range_, job, "failed", "killed")


def a_frozen_worker(range_: Range, strategy: Any) -> str:
    """It is named in the list of jobs and in the log, until it goes on."""
    job = range_.train(strategy)
    worker = descendants(main_of(job))[1]
    began = time.monotonic()
    send(worker, signal.SIGSTOP)
    until(lambda: f"process {worker.pid}) is suspended" in job.stands_still(), "the job to say so")
    until(lambda: f"process {worker.pid}) is suspended" in job.tail(), "its log to say so")
    told_s = time.monotonic() - began
    send(worker, signal.SIGCONT)
    until(lambda: not job.stands_still(), "the job to go on")
    job_requests.stop(job)
    return f"told after {told_s:.1f} s; {closed(range_, job, 'stopped', None)}"


def a_process_it_can_spare(number: int, range_: Range, strategy: Any) -> str:
    """Training goes on to its end without the process, or with it started again."""
    job = range_.train(strategy, epochs=60)
    kill(descendants(main_of(job))[number])
    words = closed(range_, job, "finished", None)
    (said,) = [line for line in job.log.read_text(encoding="utf-8").splitlines() if " died: " in line]
    return f"{words} {said}"


def the_supervisor(range_: Range, strategy: Any) -> str:
    job = range_.train(strategy, epochs=150)
    before = current(range_)
    kill(before)
    assert job.state() == "running", job.state()
    assert supervisor_handle.ensure(range_.workspace) != before
    return closed(range_, job, "finished", None)


def supervisor_and_main(range_: Range, strategy: Any) -> str:
    job = range_.train(strategy)
    kill(current(range_))
    kill(main_of(job))
    assert job.state() == "failed", job.state()
    supervisor_handle.ensure(range_.workspace)
    return closed(range_, job, "failed", "killed")


def the_warm_process(range_: Range, strategy: Any) -> str:
    job = range_.train(strategy, epochs=150)
    (warm,) = (ProcessId.of(child.pid) for child in psutil.Process(current(range_).pid).children() if is_warm(child))
    kill(warm)
    return closed(range_, job, "finished", None)


def the_app(range_: Range, strategy: Any) -> str:
    """Kill the owner, the Streamlit server and the MLflow server at once."""
    command = [sys.executable, "-m", "scalebook.app.serve", str(range_.workspace.root)]
    app = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
    said = app.stdout
    assert said is not None
    try:
        until(lambda: "Ctrl+C" in said.readline(), "the app")
        job = range_.train(strategy, epochs=150)
        servers = [
            descendant for descendant in descendants(ProcessId.of(app.pid)) if not of_supervisor(range_, descendant)
        ]
        assert len(servers) >= 2, servers
        for process in [ProcessId.of(app.pid), *servers]:
            send(process, signal.SIGKILL)
    finally:
        app.kill()
        app.wait()
        said.close()
    assert job.state() == "running", job.state()
    return closed(range_, job, "finished", None)


def is_warm(process: psutil.Process) -> bool:
    return "scalebook.training.jobs.fork_server" in process.cmdline()


def of_supervisor(range_: Range, process: ProcessId) -> bool:
    family = [current(range_), *descendants(current(range_))]
    return process in family


def closed(range_: Range, job: JobFolder, state: str, failure: str | tuple[str, ...] | None) -> str:
    """Wait for the end of a job and check it, in its folder, in MLflow and as the terminal prints it; returns the time
    since the call, and the cause."""
    began = time.monotonic()
    process = main_of(job)
    result = until(job.result, "a result")
    assert result is not None
    until(lambda: session(process) == [], "the end of its processes")
    seconds = time.monotonic() - began
    assert result.status == state, result
    assert result.failure in (failure if isinstance(failure, tuple) else (failure,)), result
    until(lambda: not job.unrecorded.exists(), "MLflow to be told")
    recorded_s = time.monotonic() - began
    run = open_store(range_.workspace).get_run(job.id)
    assert run.info.status == MLFLOW_STATUS[state], run.info.status
    assert run.data.tags.get(names.TAG_CAUSE, "") == result.cause, run.data.tags
    assert RunLines(io.StringIO(), [job], {}).line(job, job.state()).endswith(result.why), result
    return f"closed after {seconds:.1f} s, MLflow {run.info.status} after {recorded_s:.1f} s  {result.cause}"


@contextmanager
def workplace() -> Iterator[Range]:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder).resolve()).create()
        open_store(workspace)
        with supervisor_handle.hold_supervisor(workspace):
            supervisor_handle.ensure(workspace)
            until(lambda: (now := status(workspace)) and now.warm == "ready", "the warm process")
            try:
                yield Range(workspace, describe(workspace))
            finally:
                if (last := supervisor_handle.running(workspace)) is not None:
                    send(last, signal.SIGTERM)
                    until(lambda: not alive(last), "the supervisor to leave")


BOTH_DIE: dict[str, Callable[[Range, Any], str]] = {
    "worker 0 then main process": partial(main_process_beside_worker, "worker", PAUSE_S),
    "worker 0, main process 0.3 s later": partial(main_process_beside_worker, "worker", 0.3),
    "main process then worker 0": partial(main_process_beside_worker, "main", 0.0),
    "worker 0, supervisor, main process": worker_main_and_supervisor,
}
DRILLS: tuple[tuple[str, Callable[[Range, Any], str], Any], ...] = (
    ("main process, AsyncPS", main_process, ASYNC),
    ("worker 0, AsyncPS", partial(a_worker, 0), ASYNC),
    ("worker 1, AsyncPS", partial(a_process_it_can_spare, 1), ASYNC),
    ("worker 1, AsyncPS sync, restarts", partial(a_process_it_can_spare, 2), SYNC_RESTARTED),
    ("server, AsyncPS sync", partial(a_process_it_can_spare, 0), SYNC_RESTARTED),
    ("main process, DDP", main_process, "ddp"),
    ("worker 0, DDP", partial(a_worker, 0), "ddp"),
    ("worker 1, DDP", partial(a_worker, 1), "ddp"),
    ("supervisor, AsyncPS", the_supervisor, ASYNC),
    ("supervisor, then main process", supervisor_and_main, ASYNC),
    ("warm process, DDP", the_warm_process, "ddp"),
    ("app, Streamlit, MLflow server", the_app, ASYNC),
    *(
        (f"{name}, {strategy}", drill, configured)
        for strategy, configured in {"AsyncPS": ASYNC, "Peers": PEERS, "DDP": "ddp", "ModelParallel": SPLIT}.items()
        for name, drill in BOTH_DIE.items()
    ),
    ("SIGTERM, AsyncPS", partial(a_stop_on_request, "SIGTERM"), ASYNC),
    ("SIGTERM, Peers", partial(a_stop_on_request, "SIGTERM"), PEERS),
    ("SIGTERM, ModelParallel", partial(a_stop_on_request, "SIGTERM"), SPLIT),
    ("stop in the app, DDP", partial(a_stop_on_request, "stop"), "ddp"),
    ("frozen worker, Peers", a_frozen_worker, PEERS),
    ("frozen worker, ModelParallel", a_frozen_worker, SPLIT),
    ("killed while it stops, AsyncPS", killed_while_it_stops, ASYNC),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="only drills whose name has this word")
    options = parser.parse_args()
    failures = 0
    before = set(SHARED_MEMORY.iterdir())
    with workplace() as range_:
        for name, drill, strategy in DRILLS * options.rounds:
            if options.only not in name:
                continue
            try:
                words = drill(range_, strategy)
            except (AssertionError, TimeoutError) as error:
                failures += 1
                words = f"NOT AS PROMISED: {error}"
            left = sorted(path.name for path in set(SHARED_MEMORY.iterdir()) - before)
            failures += bool(left)
            print(f"{name:50} {words}{'  SHARED MEMORY LEFT: ' + ', '.join(left) if left else ''}", flush=True)
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
