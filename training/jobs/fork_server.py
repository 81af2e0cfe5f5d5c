"""The fork server: a server that has imported everything, started nothing, and is forked once per job.

`python -m scalebook.training.jobs.fork_server`.

It imports torch, lightning, mlflow and this package, but no module of the user's; it computes nothing, and starts
neither threads nor CUDA: a fork of it is a fresh process without 6 s of imports. After its first order, when idle, it
does once what each job would do anew (`prepare`, in the runner's module). Orders and reports are JSON packets on the
socket that it is started with. When the supervisor closes its end, or dies, the fork server ends, and the jobs go on.

A fork takes the environment of whoever submitted its job. If that has other variables of the kind that is read once,
at the start, the fork becomes a new Python process, which imports everything again.
"""

import argparse
import faulthandler
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from scalebook.training.base import ProcessId, Workspace, node_rank, processes, safe_path
from scalebook.training.base.files import EXIT_NO_ROOM, forgive, is_full
from scalebook.training.jobs.begin_request import RemoteJobContext, await_permission, end_with
from scalebook.training.jobs.executor import CLAIMED_ELSEWHERE, GPUS_TAKEN, LocalHandle
from scalebook.training.jobs.gpu_allocation import TakenError, claim
from scalebook.training.jobs.gpus import VISIBLE
from scalebook.training.jobs.job_environment import (
    DEFAULTS,
    forget_environment,
    has_environment,
    kept_environment,
    read_too_early,
    replace_environment,
)
from scalebook.training.jobs.job_folder import JobFolder, JobStart, keep_claimed
from scalebook.training.tracking import SPOOL, names

Runner = Callable[[Path], int]
Prepare = Callable[[Path | None], None]
"""Called with the first job's folder, unless that is a copy of one on another node."""
PACKET = 65536
IDLE_S = 0.1
"""Idle time after which there is time to prepare, s."""


@dataclass(frozen=True)
class Order:
    """An order to start a job on these devices. Paths are absolute; `gpus` are UUIDs."""

    folder: str
    workspace: str
    cores: list[int]
    gpus: list[str]
    away: dict[str, Any] | None = None
    """An `RemoteJobContext`, of a job whose folder is on another machine."""


@dataclass(frozen=True)
class Report:
    """A report to the supervisor: `ready` once, with the number of this process's threads (1 is right), then `ended`
    for every job.

    `code` is the exit code, or minus the number of the signal that ended the job.
    """

    event: str
    threads: int = 0
    job: str = ""
    pid: int = 0
    code: int = 0
    problem: str = ""


class ForkServer:
    """Waits for orders, forks, and reports how each fork ended."""

    def __init__(
        self,
        connection: socket.socket,
        runner: Runner,
        prepare: Prepare | None = None,
        started: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`started`: the environment that this process started with."""
        self.connection = connection
        self.runner = runner
        self.started = started
        self.prepare = prepare
        self.to_prepare: Callable[[], None] | None = None
        self.selector = selectors.DefaultSelector()
        self.selector.register(connection, selectors.EVENT_READ, None)

    def serve(self) -> None:
        """Serve until the supervisor closes its end."""
        self._report(Report("ready", threads=len(os.listdir("/proc/self/task"))))
        while True:
            events = self.selector.select(IDLE_S if self.to_prepare else None)
            if not events:
                self._prepare()
            for key, _ in events:
                if key.data is not None:
                    self._reap(key.fd, *key.data)
                elif packet := self.connection.recv(PACKET):
                    self._start(Order(**json.loads(packet)))
                else:
                    return

    def _start(self, order: Order) -> None:
        name = Path(order.folder).name
        try:
            pid = os.fork()
        except OSError as error:
            self._report(Report("ended", job=name, code=1, problem=f"no process could be forked: {error}"))
            return
        if pid == 0:
            self._be_the_job(order)
        self.selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, name))
        self._plan_preparing(order)

    def _plan_preparing(self, order: Order) -> None:
        """Behind the first order."""
        if self.prepare is not None:
            folder = Path(order.folder) if order.away is None else None
            self.to_prepare, self.prepare = partial(self.prepare, folder), None

    def _prepare(self) -> None:
        """Jobs are forked from here whether it succeeds or not: it saves them time, and nothing else."""
        assert self.to_prepare is not None
        prepare, self.to_prepare = self.to_prepare, None
        try:
            prepare()
        except Exception:  # noqa: BLE001 - whatever it is, jobs meet it themselves, and say it in their logs
            traceback.print_exc()
        gc.collect()  # first: connections are closed only so
        gc.freeze()  # not looked at, and so not copied, in what is forked from here

    def _reap(self, handle: int, pid: int, name: str) -> None:
        self.selector.unregister(handle)
        os.close(handle)
        _, status = os.waitpid(pid, 0)
        self._report(Report("ended", job=name, pid=pid, code=os.waitstatus_to_exitcode(status)))

    def _report(self, report: Report) -> None:
        with suppress(BrokenPipeError):  # the supervisor died; the next round of `serve` sees the closed end
            self.connection.send(json.dumps(asdict(report)).encode())

    def _be_the_job(self, order: Order) -> NoReturn:
        """In the fork."""
        self.selector.close()
        self.connection.close()
        _to_the_end(partial(_run, order, self.runner, self.started))


def _to_the_end(work: Callable[[], int]) -> NoReturn:
    """Do what this process is for, and end it."""
    code = 1
    try:
        code = work()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except OSError as error:
        traceback.print_exc()
        code = EXIT_NO_ROOM if is_full(error) else code
    except BaseException:  # noqa: BLE001 - this is the top of the process: everything goes to the log and the exit code
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run(order: Order, runner: Runner, started: Mapping[str, str]) -> int:
    """Make the fork a process of the job's own, then run the job. `started`: the fork server's environment."""
    job = JobFolder(Path(order.folder))
    os.setsid()
    _redirect(job.log)
    forgive()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order.cores:
        os.sched_setaffinity(0, order.cores)
    missed = _take_environment(order, started)
    os.environ[VISIBLE] = ",".join(order.gpus)
    node_rank.forget_launchers(os.environ)
    os.chdir(order.workspace)
    try:
        if not _is_mine(job, order):
            return CLAIMED_ELSEWHERE
    except TakenError as error:
        print(f"scalebook: job {job.id} waits again: {error}", flush=True)
        return GPUS_TAKEN
    if order.away is None:
        forget_environment(job.path)
    gpus = f", GPUs {', '.join(order.gpus)}" if order.gpus else ""
    cores = ", ".join(map(str, order.cores))
    print(f"scalebook: job {job.id}, process {os.getpid()}, cores {cores}{gpus}", flush=True)
    if missed:
        print(
            f"scalebook: starting a new Python process, because {', '.join(missed)} must be set before the process "
            "starts",
            flush=True,
        )
        _begin_again(order, runner)
    return runner(job.path)


def _take_environment(order: Order, started: Mapping[str, str]) -> list[str]:
    """Take the job's environment; the variables that this process has read already, with other values."""
    folder = Path(order.folder)
    if order.away is not None:
        wanted = {**started, **RemoteJobContext.of(order.away).environment}
    elif (submitted := kept_environment(folder)) is not None:
        wanted = {**DEFAULTS, **submitted}
    else:
        if has_environment(folder):
            why = "the environment found with this job is not yours, so the job runs in the supervisor's environment"
            print(f"scalebook: {why}", flush=True)
        return []
    if (theirs := wanted.get(VISIBLE)) is not None and theirs != started.get(VISIBLE):
        print(f"scalebook: {VISIBLE}={theirs} has no effect, because the queue assigns GPUs", flush=True)
    missed = read_too_early(wanted, started, os.environ)
    replace_environment(wanted, started)
    tempfile.tempdir = None  # found with the variables of before
    time.tzset()
    return missed


def _begin_again(order: Order, runner: Runner) -> NoReturn:
    """Go on as a new Python process, with the same pid, files and environment, which imports everything again."""
    words = ["--job", order.folder, "--runner", f"{runner.__module__}:{runner.__qualname__}"]
    if order.away is not None:
        words += ["--keeper", json.dumps(order.away["keeper"])]
    command = safe_path.python("-m", "scalebook.training.jobs.fork_server", *words)
    os.execve(command[0], command, safe_path.environment())


def _go_on(options: Any) -> int:
    """Run a job that has begun in a fork (`_begin_again`)."""
    faulthandler.enable()
    forgive()
    job = JobFolder(Path(options.job))
    keep_claimed(job.path)
    if options.keeper:
        end_with(ProcessId(**json.loads(options.keeper)))
    with safe_path.importing():
        runner = load(options.runner)
    return runner(job.path)


def _is_mine(job: JobFolder, order: Order) -> bool:
    """Whether this process is the one that runs the job; where its folder is elsewhere, that is decided there.
    TakenError where another job has its GPUs by now."""
    me = LocalHandle.of_this_process()
    if order.away is None:
        return claim(Workspace(Path(order.workspace)), job, JobStart(me, time.time(), order.cores, order.gpus))
    away = RemoteJobContext.of(order.away)
    handle = away.handle(me.process)
    started = JobStart(handle, time.time(), order.cores, order.gpus, machine=away.machine, others=away.others)
    if not await_permission(Path(away.asks), started):
        return False
    end_with(away.keeper)
    job.claim(started)  # where this is a copy of the folder
    os.environ[SPOOL] = str(job.path / names.SPOOL)
    os.environ.update(away.environment)
    return True


def _redirect(log: Path) -> None:
    """Standard output and error to the end of the log, input from nowhere, and no other file left open."""
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, number in ((nothing, 0), (target, 1), (target, 2)):
        os.dup2(source, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):  # the descriptor that listed the folder
                os.close(int(name))
    faulthandler.enable()


def load(runner: str) -> Runner:
    """The function that `module:name` names."""
    module, _, name = runner.partition(":")
    function: Runner = getattr(importlib.import_module(module), name)
    return function


def preparing(runner: Runner) -> Prepare | None:
    """`prepare` of the runner's module, if it has one."""
    prepare: Prepare | None = getattr(sys.modules[runner.__module__], "prepare", None)
    return prepare


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scalebook.training.jobs.fork_server")
    parser.add_argument("--socket", type=int, help="inherited descriptor of the supervisor's socket")
    parser.add_argument("--parent", type=int, help="the supervisor's pid")
    parser.add_argument(
        "--job", help="instead of --socket and --parent: the folder of a job that this process has already started"
    )
    parser.add_argument("--keeper", help="the agent's process, if the job runs on another node")
    parser.add_argument("--runner", required=True, help="module:function that runs the job stored in a folder")
    parser.add_argument("--preload", default="", help="modules to preload, separated by commas")
    options: Any = parser.parse_args(argv)
    started = dict(os.environ)
    if options.job is not None:
        _to_the_end(partial(_go_on, options))
    processes.die_with_parent(options.parent)
    with safe_path.importing():
        for name in filter(None, options.preload.split(",")):
            importlib.import_module(name)
        runner = load(options.runner)
    ForkServer(socket.socket(fileno=options.socket), runner, preparing(runner), started).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
