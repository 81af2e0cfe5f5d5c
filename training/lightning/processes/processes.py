"""The processes of a run: forked, watched, ended. For every strategy with several workers.

The process that calls `run_workers` is the monitor, not a worker. It must not have used CUDA, which does not survive a
fork.
"""

import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from scalebook.training.lightning.processes.forked import Body, Role, WorkerTraceback
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

__all__ = ["LostProcess", "Policy", "Reaction", "WorkerTraceback", "run_workers"]

_PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h


def always_end(_lost: LostProcess) -> Reaction:
    """The policy of a run that cannot do without any of its processes."""
    return Reaction.END


def no_meetings() -> None:
    """The arrivals of a run whose processes do not meet before they begin."""


def no_waits() -> dict[int, str]:
    """Of a run whose processes say of no wait what it is for."""
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

    Workers have the numbers from `first` on, where those before run on other machines: `others`, which may end the run
    here, as a death or an exception here is told to them.

    `serve(server)` runs in `servers` further processes, forked first. They are to end by themselves when the workers
    have; those that have not a grace period later are made to.

    A process that dies without a result is noticed at once, and `lost` is asked in the monitor: to END the run
    (`WorkerLost` or `ServerLost` is raised), to GO_ON without it (its result is None; when all workers were lost,
    `WorkerLost` is raised for the last), or to RESTART it: the same body is forked with the same number again, from
    the memory of the monitor as it is then. Exceptions are another matter: the first worker's or server's is raised,
    with its type, as soon as it comes, unless a death that ends the run explains it.

    `threads` are torch's in each process; None shares out what there is (`threads`). While
    `arrivals` tells of meetings that workers are still to come to, TimedOut is raised when nobody in the run has done
    anything for a minute; it names whoever did not come, and says where that worker stands. From then on a warning
    says, with stacks, where all stand when nothing has happened for a minute in the run, or in one of its `waits`.

    However this ends, no process of the run and none that they have started is left. SIGTERM to this process is passed
    on to worker 0 (the first that runs, if it was lost).
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

    def pass_on(number: int, _frame: FrameType | None) -> None:
        watch.stopping.set()
        if (pid := watch.first_worker()) is not None:
            os.kill(pid, number)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Make the processes of a killed worker (a DataLoader's, say) children of this one, so that it can end them."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
