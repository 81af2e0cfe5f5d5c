"""Forks, watches and ends the processes of a run, for every strategy with several workers.

The process that calls `run_workers` is the monitor, not a worker. It must not have used CUDA, which does not work after
a fork.
"""

import ctypes
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from scalebook.training.lightning.processes.forked import Body, Role, in_turn
from scalebook.training.lightning.processes.peer_monitor import NONE, PeerMonitor
from scalebook.training.lightning.processes.process_watch import (
    Arrivals,
    LostProcess,
    Policy,
    ProcessWatch,
    Reaction,
    Waits,
)
from scalebook.training.lightning.processes.threads import each_of

_PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
_adopting: Counter[int] = Counter()
"""How many runs of a process do so now, by its pid."""


def always_end(_lost: LostProcess) -> Reaction:
    """The policy of a run that needs all of its processes."""
    return Reaction.END


def no_meetings() -> None:
    """`arrivals` for a run whose processes do not meet before they begin."""


def no_waits() -> dict[int, str]:
    """`waits` for a run whose processes do not report their waits."""
    return {}


def run_workers(
    count: int,
    body: Body,
    *,
    servers: int = 0,
    serve: Body | None = None,
    lost: Policy = always_end,
    threads: int | None = None,
    arrivals: Arrivals = no_meetings,
    waits: Waits = no_waits,
    first: int = 0,
    others: PeerMonitor = NONE,
) -> list[Any]:
    """Run `body(worker)` in `count` forked processes and return what each returned, in order.

    Workers have numbers from `first` on, if those before run on other nodes. `others` are these nodes: they may end the
    run here, and are told of a death or an exception here.

    `serve(server)` runs in `servers` further processes, forked first. They should end by themselves after the workers;
    after a grace period they are ended.

    A process that dies without a result is noticed at once, and `lost` decides in the monitor: END the run
    (`WorkerLost` or `ServerLost` is raised), GO_ON without the process (its result is None; when all workers were lost,
    `WorkerLost` is raised for the last), or RESTART it: the same body is forked again with the same number, from the
    monitor's memory as it is then. Exceptions are different: the first one of a worker or server is raised at once,
    with its type, unless a death that ends the run explains it.

    `threads` are torch's in each process; None divides the cores (`threads`). While `arrivals` has meetings that
    workers must still reach, TimedOut is raised when no process of the run has been active for a minute; it names the
    workers that did not come, with their stacks. After that, a warning shows all stacks when nothing has happened for a
    minute in the run, or in one of its `waits`.

    However this ends, it leaves no process of the run, nor any that they have started. SIGTERM to this process is
    passed on to worker 0 (or the first running worker, if 0 was lost).
    """
    assert (servers > 0) <= (serve is not None), "servers without a body"
    bodies: dict[Role, Body] = {"worker": body} if serve is None else {"worker": body, "server": serve}
    watch = ProcessWatch(bodies, lost, each_of(count, threads), arrivals, waits, others)
    with _adopting_orphans(), _passing_on_sigterm(watch):
        try:
            for number in range(servers):
                watch.start("server", number)
            for number in filter(others.is_there, range(first, first + count)):
                watch.start("worker", number)
            others.start_monitoring()
            return watch.results(range(first, first + count))
        except BaseException as error:
            cause = others.explained(error)
            if cause is error:
                raise
            raise cause from error
        finally:
            watch.terminate_all()
            others.stop_monitoring()


@contextmanager
def _passing_on_sigterm(watch: ProcessWatch) -> Iterator[None]:
    """While the workers run, SIGTERM reaches the first of them and nobody else: Lightning spreads it from there.

    All ranks of a DDP run at once deadlock.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = signal.signal(signal.SIGTERM, lambda number, _frame: watch.pass_on(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Make the processes of a killed worker (a DataLoader's, say) children of this one, so that it can end them."""
    prctl, pid = ctypes.CDLL(None).prctl, os.getpid()
    with in_turn():
        _adopting[pid] += 1
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        with in_turn():
            _adopting[pid] -= 1
            if not _adopting[pid]:  # no fit of another thread needs it
                prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
