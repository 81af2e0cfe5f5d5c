"""The processes of a run: forked, watched, ended. For every strategy with several workers.

The process that calls `run_workers` is the monitor, not a worker. It must not have used CUDA, and not torch's thread
pool, because neither survives a fork.
"""

import ctypes
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, Final, NamedTuple

import psutil
import torch

from training.failures import WorkerLost

GRACE_S: Final = 3.0  # between SIGTERM and SIGKILL
STOP_S: Final = 20.0  # between a SIGTERM passed on to worker 0 and the end of all, whatever it does
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER: Final = 36


class Worker(NamedTuple):
    """One worker as the monitor sees it."""

    number: int
    process: BaseProcess
    messages: Connection
    death: int  # a file descriptor that becomes readable when the process ends


class WorkerTraceback(Exception):  # the cause of an error, not an error
    """Where in the worker an exception was raised; the cause of the exception that the monitor raises again."""

    def __init__(self, worker: int, text: str) -> None:
        super().__init__(f"in worker {worker}:\n{text}")


class _Ended(NamedTuple):
    """A worker's last message: what its body returned, or the exception that ended it."""

    result: Any
    error: BaseException | None
    text: str


def run_workers(count: int, body: Callable[[int], Any]) -> list[Any]:
    """Run `body(index)` in `count` forked processes and return what each returned, in order.

    Raises the first worker's exception, with its type, as soon as it comes; `WorkerLost` when a process dies
    without one, whatever the others report as a consequence. However this ends, no worker and no process that
    a worker has started is left. SIGTERM to this process is passed on to worker 0.
    """
    strangers = {child.pid for child in psutil.Process().children(recursive=True)}
    workers: list[Worker] = []
    with _adopting_orphans(), _passing_on_sigterm(workers) as stopping:
        try:
            workers.extend(_fork(index, body) for index in range(count))
            results = _watch(workers, stopping)
            for worker in workers:  # time to close files; a result was sent before
                wait([worker.death], GRACE_S)
            return results
        finally:
            _end(workers, strangers)


def _fork(index: int, body: Callable[[int], Any]) -> Worker:
    context: ForkContext = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(
        target=_worker_main, args=(index, body, sending, os.getpid(), torch.get_num_threads()), name=f"worker-{index}"
    )
    process.start()
    sending.close()
    # Not process.sentinel where there is a choice: what a worker has started keeps that open.
    death = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") and process.pid else os.dup(process.sentinel)
    return Worker(index, process, receiving, death)


def _worker_main(index: int, body: Callable[[int], Any], messages: Connection, monitor: int, threads: int) -> None:
    """A worker's life. Ends by message, so that the monitor can tell an end from a death."""
    die_with(monitor)
    os.register_at_fork(after_in_child=messages.close)  # the pipe ends with this process, whatever it starts
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(threads)
    try:
        message = pickle.dumps(_Ended(body(index), None, ""))  # not Connection.send: torch would share the tensors
    except BaseException as error:  # noqa: BLE001  # everything, SystemExit too, is reported and raised by the monitor
        message = pickle.dumps(_Ended(None, _portable(error), traceback.format_exc()))
    messages.send_bytes(message)
    messages.close()
    sys.stdout.flush()
    sys.stderr.flush()


def _portable(error: BaseException) -> BaseException:
    """The exception itself if it survives pickling, else a RuntimeError that says what it was."""
    try:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301  # made two lines above
        if type(again) is type(error):
            return error
    except Exception:  # noqa: BLE001  # any failure to pickle means the same: use the replacement below
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")


def _watch(workers: list[Worker], stopping: threading.Event) -> list[Any]:
    """Collect every worker's last message; raise for the first that failed or died."""
    results: dict[int, Any] = {}
    running = {worker.number: worker for worker in workers}
    until = math.inf
    while running:
        ready = wait([w.messages for w in running.values()] + [w.death for w in running.values()], timeout=1.0)
        if stopping.is_set():
            until = min(until, time.monotonic() + STOP_S)
        if time.monotonic() > until:
            raise SystemExit(128 + signal.SIGTERM)
        for worker in [w for w in running.values() if w.messages in ready or w.death in ready]:
            ended = _last_message(worker)
            if ended is None:
                raise _lost(worker, stopping)
            if ended.error is not None:
                _prefer_a_death(running, worker, stopping)
                raise ended.error from WorkerTraceback(worker.number, ended.text)
            results[worker.number] = ended.result
            del running[worker.number]
    return [results[worker.number] for worker in workers]


def _last_message(worker: Worker) -> _Ended | None:
    try:
        message = worker.messages.recv_bytes()
    except (EOFError, ConnectionResetError):
        return None
    ended: _Ended = pickle.loads(message)  # noqa: S301  # from our own fork, through a pipe that only it has
    return ended


def _prefer_a_death(running: dict[int, Worker], failed: Worker, stopping: threading.Event) -> None:
    """An exception in one worker is often the echo of another's death: give that 0.3 s to show."""
    others = [w for w in running.values() if w is not failed]
    ready = wait([w.death for w in others], timeout=0.3)
    for other in others:
        if other.death in ready and _last_message(other) is None:
            raise _lost(other, stopping)


def _lost(worker: Worker, stopping: threading.Event) -> BaseException:
    wait([worker.death], GRACE_S)
    code, pid = worker.process.exitcode, worker.process.pid
    if stopping.is_set() and code == -signal.SIGTERM:
        return SystemExit(128 + signal.SIGTERM)  # asked to stop before training had begun
    if code is not None and code < 0:
        return WorkerLost(worker.number, f"process {pid} was killed by signal {signal.Signals(-code).name}")
    return WorkerLost(worker.number, f"process {pid} ended with exit code {code} and without a result")


def _end(workers: list[Worker], strangers: set[int]) -> None:
    """SIGTERM, a grace period, SIGKILL; then whatever the workers left; processes in `strangers` are not ours."""
    for worker in workers:
        if worker.process.is_alive():
            worker.process.terminate()
    until = time.monotonic() + GRACE_S
    for worker in workers:
        wait([worker.death], max(0.0, until - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.messages.close()
        os.close(worker.death)
        worker.process.close()
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in strangers]
    for child in left:
        with _gone_is_fine():
            child.kill()
    psutil.wait_procs(left, timeout=GRACE_S)


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except psutil.NoSuchProcess:
        return


@contextmanager
def _passing_on_sigterm(workers: list[Worker]) -> Iterator[threading.Event]:
    """While the workers run, SIGTERM reaches worker 0 and nobody else: Lightning spreads it from there.

    All ranks of a DDP run at once deadlock. The event is set once SIGTERM has come.
    """
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    def pass_on(number: int, _frame: FrameType | None) -> None:
        stopping.set()
        if workers and workers[0].process.is_alive() and workers[0].process.pid is not None:
            os.kill(workers[0].process.pid, number)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield stopping
    finally:
        signal.signal(signal.SIGTERM, before)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies (Linux; elsewhere the parent's own clean-up must do)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Make the processes of a killed worker (a DataLoader's, say) children of this one, so that it can end them."""
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
