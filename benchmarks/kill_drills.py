"""kill -9 of every kind of process, in the middle of real training: `python -m benchmarks.kill_drills [--only WORD]`.

Each drill trains a small classifier on digits in two workers, kills one process, and checks the result: the recorded
state and cause, how long that took, whether MLflow is right, and whether any process or shared memory is left. Read the
lines with NOT AS PROMISED: there must be none, else the exit code is 1. Takes about 2 minutes.
"""

import io
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.common import parser, until
from benchmarks.drills import STRATEGIES, Scene, kill, perform, scene
from scalebook.training.base.processes import ProcessId
from scalebook.training.cli.run_lines import RunLines
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.job_folder import JobFolder

SYNC_RESTARTED: Final = {  # with one server, forked first
    "class_path": "AsyncPS",
    "init_args": {"rule": "sync", "workers": 2, "limits": {"restarts": 1}, "host": "process"},
}
RESTARTED: Final = "AsyncPS sync, restarts"
PAUSE_S: Final = 0.005
"""Between the deaths of two processes that die together."""


def main_of(job: JobFolder) -> ProcessId:
    started = job.started()
    assert started is not None, f"{job.id} has not started"
    return started.handle.process


def main_process(drills: Scene, strategy: Any) -> str:
    job = drills.train(strategy)
    kill(main_of(job))
    return closed(drills, job, "failed", "killed")


def a_worker(number: int, drills: Scene, strategy: Any) -> str:
    job = drills.train(strategy)
    kill(main_of(job).descendants()[number])
    return closed(drills, job, "failed", "worker lost")


def several_at_once(order: tuple[str, ...], pause_s: float, drills: Scene, strategy: Any) -> str:
    """Kill processes within milliseconds, as when memory runs out; nobody has asked the run to stop. If the supervisor
    dies too, the next one has only the folder."""
    job = drills.train(strategy)
    main, supervisor = main_of(job), drills.supervisor()
    processes = {"main": main, "worker": main.descendants()[0], "supervisor": supervisor}
    for name in order:
        processes[name].send(signal.SIGKILL)
        time.sleep(pause_s)
    if "supervisor" in order:
        until(lambda: not supervisor.alive(), "the supervisor to die")
        supervisor_handle.ensure(drills.workspace)
    words = closed(drills, job, "failed", ("killed", "worker lost"))
    assert job.stop_request() is None, job.stop_request()
    return words


def a_stop_on_request(how: str, drills: Scene, strategy: Any) -> str:
    """By a person, or by SIGTERM to the main process, passed on to worker 0."""
    job = drills.train(strategy)
    if how == "SIGTERM":
        main_of(job).send(signal.SIGTERM)
        cause = "stopped on request by SIGTERM to the run"
    else:
        job_requests.stop(job, "in the app")
        cause = "stopped on request in the app"
    words = closed(drills, job, "stopped", None)
    result = job.result()
    assert result is not None
    assert result.cause == cause, result
    return words


def killed_while_it_stops(drills: Scene, strategy: Any) -> str:
    """A request, then a death that does not follow from it."""
    job = drills.train(strategy)
    main_of(job).send(signal.SIGSTOP)  # so that it does not stop by itself before it is killed
    job_requests.stop(job, "in the app")
    main_of(job).send(signal.SIGKILL)
    return closed(drills, job, "failed", "killed")


def a_frozen_worker(drills: Scene, strategy: Any) -> str:
    """It is named in the list of jobs and in the log, until it goes on."""
    job = drills.train(strategy)
    worker = main_of(job).descendants()[1]
    began = time.monotonic()
    worker.send(signal.SIGSTOP)
    until(lambda: f"process {worker.pid}) is suspended" in job.stands_still(), "the job to say so")
    until(lambda: f"process {worker.pid}) is suspended" in job.tail(), "its log to say so")
    told_s = time.monotonic() - began
    worker.send(signal.SIGCONT)
    until(lambda: not job.stands_still(), "the job to go on")
    job_requests.stop(job)
    return f"told after {told_s:.1f} s; {closed(drills, job, 'stopped', None)}"


def a_process_it_can_spare(number: int, drills: Scene, strategy: Any) -> str:
    """Training goes on to its end without the process, or with it started again."""
    job = drills.train(strategy, epochs=60)
    kill(main_of(job).descendants()[number])
    words = closed(drills, job, "finished", None)
    (said,) = [line for line in job.log.read_text(encoding="utf-8").splitlines() if " died: " in line]
    return f"{words} {said}"


def the_supervisor(drills: Scene, strategy: Any) -> str:
    job = drills.train(strategy, epochs=150)
    before = drills.supervisor()
    kill(before)
    assert job.state() == "running", job.state()
    assert supervisor_handle.ensure(drills.workspace) != before
    return closed(drills, job, "finished", None)


def supervisor_and_main(drills: Scene, strategy: Any) -> str:
    job = drills.train(strategy)
    kill(drills.supervisor())
    kill(main_of(job))
    assert job.state() == "failed", job.state()
    supervisor_handle.ensure(drills.workspace)
    return closed(drills, job, "failed", "killed")


def the_warm_process(drills: Scene, strategy: Any) -> str:
    job = drills.train(strategy, epochs=150)
    children = psutil.Process(drills.supervisor().pid).children()
    (warm,) = (child for child in children if "scalebook.training.jobs.fork_server" in child.cmdline())
    kill(ProcessId.of(warm.pid))
    return closed(drills, job, "finished", None)


def the_app(drills: Scene, strategy: Any) -> str:
    """Kill the owner, the Streamlit server and the MLflow server at once."""
    command = [sys.executable, "-m", "scalebook.app.serve", str(drills.workspace.root)]
    app = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
    said = app.stdout
    assert said is not None
    try:
        until(lambda: "Ctrl+C" in said.readline(), "the app")
        job = drills.train(strategy, epochs=150)
        family = [drills.supervisor(), *drills.supervisor().descendants()]
        servers = [one for one in ProcessId.of(app.pid).descendants() if one not in family]
        assert len(servers) >= 2, servers
        for process in [ProcessId.of(app.pid), *servers]:
            process.send(signal.SIGKILL)
    finally:
        app.kill()
        app.wait()
        said.close()
    assert job.state() == "running", job.state()
    return closed(drills, job, "finished", None)


def closed(drills: Scene, job: JobFolder, state: str, failure: str | tuple[str, ...] | None) -> str:
    """Wait for the end of a job and check it, in its folder, in MLflow and as the terminal prints it; returns the time
    since the call, and the cause."""
    began, process = time.monotonic(), main_of(job)
    until(job.result, "a result")
    until(lambda: process.session() == [], "the end of its processes")
    seconds = time.monotonic() - began
    result = drills.recorded(job)
    assert result.status == state, result
    assert result.failure in (failure if isinstance(failure, tuple) else (failure,)), result
    assert RunLines(io.StringIO(), [job], {}).line(job, job.state()).endswith(result.why), result
    return f"{state}, closed after {seconds:.1f} s, in MLflow after {time.monotonic() - began:.1f} s  {result.cause}"


Drill = Callable[[Scene, Any], str]
BOTH_DIE: Final[dict[str, Drill]] = {
    "worker 0 then main process": partial(several_at_once, ("worker", "main"), PAUSE_S),
    "worker 0, main process 0.3 s later": partial(several_at_once, ("worker", "main"), 0.3),
    "main process then worker 0": partial(several_at_once, ("main", "worker"), 0.0),
    "worker 0, supervisor, main process": partial(several_at_once, ("worker", "supervisor", "main"), PAUSE_S),
}
DRILLS: Final[tuple[tuple[str, Drill, str], ...]] = (
    ("main process", main_process, "AsyncPS"),
    ("worker 0", partial(a_worker, 0), "AsyncPS"),
    ("worker 1", partial(a_process_it_can_spare, 1), "AsyncPS"),
    ("worker 1", partial(a_process_it_can_spare, 2), RESTARTED),
    ("server", partial(a_process_it_can_spare, 0), RESTARTED),
    ("main process", main_process, "DDP"),
    ("worker 0", partial(a_worker, 0), "DDP"),
    ("worker 1", partial(a_worker, 1), "DDP"),
    ("supervisor", the_supervisor, "AsyncPS"),
    ("supervisor, then main process", supervisor_and_main, "AsyncPS"),
    ("warm process", the_warm_process, "DDP"),
    ("app, Streamlit, MLflow server", the_app, "AsyncPS"),
    *((name, drill, strategy) for strategy in STRATEGIES for name, drill in BOTH_DIE.items()),
    *(("SIGTERM", partial(a_stop_on_request, "SIGTERM"), one) for one in ("AsyncPS", "Peers", "ModelParallel")),
    ("stop in the app", partial(a_stop_on_request, "stop"), "DDP"),
    ("frozen worker", a_frozen_worker, "Peers"),
    ("frozen worker", a_frozen_worker, "ModelParallel"),
    ("killed while it stops", killed_while_it_stops, "AsyncPS"),
)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", default="", help="only drills whose name has this word")
    only = options.parse_args().only
    configs = {**STRATEGIES, RESTARTED: SYNC_RESTARTED}
    with tempfile.TemporaryDirectory() as folder, scene(Path(folder)) as drills:
        chosen = [
            (f"{name}, {strategy}", partial(drill, drills, configs[strategy])) for name, drill, strategy in DRILLS
        ]
        return 1 if perform(chosen, only) else 0


if __name__ == "__main__":
    sys.exit(main())
