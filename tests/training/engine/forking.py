"""Workers as forked processes, for tests of the engine only: it has no launcher of its own."""

import gc
import os
import pickle
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, Literal, NamedTuple

import torch
import torch._dynamo  # by the first optimizer of a process: here once, not in each fork

WITHIN_S: Final = 100.0
"""The most that a run may take; pytest ends a test after 120 s."""
GRACE_S: Final = 10.0
"""Within which servers end by themselves after the workers."""
Body = Callable[[int], Any]
Role = Literal["worker", "server"]


class LostProcess(NamedTuple):
    """A process that died without a result; `cause` names the signal or exit code."""

    role: Role
    number: int
    cause: str


class Reaction(Enum):
    """What happens after a death."""

    END = auto()
    GO_ON = auto()
    RESTART = auto()


class _Process(NamedTuple):
    role: Role
    number: int
    pid: int
    results: int  # a pipe's end
    death: int  # readable when it has ended


def always_end(_lost: LostProcess) -> Reaction:
    """A run needs all of its processes."""
    return Reaction.END


def run_workers(
    count: int,
    body: Body,
    *,
    servers: int = 0,
    serve: Body | None = None,
    lost: Callable[[LostProcess], Reaction] = always_end,
) -> list[Any]:
    """Run `body(worker)` in `count` forked processes, and `serve(server)` in further ones; returns the workers' results
    in order, None for one that was lost. The first exception of a process is raised here. Leaves no process."""
    bodies: dict[Role, Body | None] = {"worker": body, "server": serve}
    running = [_fork("server", number, serve) for number in range(servers)]
    results: dict[int, Any] = {}
    until = time.monotonic() + WITHIN_S
    try:
        running += [_fork("worker", number, body) for number in range(count)]
        while any(one.role == "worker" for one in running):
            process = _next_ended(running, until)
            running.remove(process)
            message, cause = _end_of(process)
            if message is not None:
                result, error = pickle.loads(message)  # noqa: S301  # from our own fork
                if error is not None:
                    raise error
                if process.role == "worker":
                    results[process.number] = result
                continue
            reaction = lost(LostProcess(process.role, process.number, cause))
            if reaction is Reaction.END:
                raise RuntimeError(f"{process.role} {process.number} was lost: {cause}")
            if reaction is Reaction.RESTART:
                running.append(_fork(process.role, process.number, bodies[process.role]))
        if not results:
            raise RuntimeError("all workers were lost")
        until = time.monotonic() + GRACE_S
        while running and (process := _next_ended(running, until, is_needed=False)) is not None:
            running.remove(process)
            _end_of(process)
    finally:
        for process in running:
            os.kill(process.pid, signal.SIGKILL)
            _end_of(process)
    return [results.get(number) for number in range(count)]


def _fork(role: Role, number: int, body: Body | None) -> _Process:
    assert body is not None
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later, of a fork beside other threads
        pid = os.fork()
    if not pid:
        os.close(reading)
        _run(body, number, writing)
    os.close(writing)
    return _Process(role, number, pid, reading, os.pidfd_open(pid))


def _run(body: Body, number: int, writing: int) -> None:
    """In the new process: run the body, send its result or exception, and end without Python's exit handlers."""
    gc.freeze()  # garbage is looked for below, among the body's own objects
    try:
        try:
            message = pickle.dumps((body(number), None))
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is raised in the test
            error.add_note(traceback.format_exc())
            message = pickle.dumps((None, error))
        gc.collect()
        with os.fdopen(writing, "wb") as file:
            file.write(message)
    finally:
        os._exit(0)


def _next_ended(running: list[_Process], until: float, is_needed: bool = True) -> Any:
    """A process that has sent something or ended. TimeoutError, or None if it is not needed, when there is none."""
    poll = select.poll()
    by_file = {}
    for one in running:
        for file in (one.results, one.death):
            poll.register(file, select.POLLIN)
            by_file[file] = one
    ready = poll.poll(max(0.0, until - time.monotonic()) * 1000)
    if ready:
        return by_file[ready[0][0]]
    if is_needed:
        raise TimeoutError(f"{[(one.role, one.number) for one in running]} have not ended within {WITHIN_S:g} s")
    return None


def _end_of(process: _Process) -> tuple[bytes | None, str]:
    """The process's message, None if it died without one, and how it ended. Waits for its end."""
    with os.fdopen(process.results, "rb") as file:
        message = file.read()
    _, status = os.waitpid(process.pid, 0)
    os.close(process.death)
    if os.WIFSIGNALED(status):
        return None, f"process {process.pid} was killed by signal {signal.Signals(os.WTERMSIG(status)).name}"
    return message or None, f"process {process.pid} ended with exit code {os.waitstatus_to_exitcode(status)}"
