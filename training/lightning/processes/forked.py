"""One forked process of a run: how it starts, how its end differs from a death, and what its monitor holds."""

import ctypes
import errno
import faulthandler
import gc
import mmap
import multiprocessing
import os
import pickle
import random
import resource
import secrets
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext
from multiprocessing.process import BaseProcess
from time import monotonic, sleep
from typing import Any, Final, Literal, NamedTuple

import torch

from scalebook.training.engine import anonymous_file
from scalebook.training.lightning import random_streams
from scalebook.training.lightning.processes.threads import end_pools

_ANSWER_S: Final = 2.0
MOST_LINES: Final = 40
FORK_WARNING: Final = r"This process \(pid=\d+\) is multi-threaded, use of fork"
"""How Python's warning begins, from 3.12 on."""


def _ask() -> int:
    """The signal that asks for a stack. Looked up when called: the module is also imported where `require_linux` then
    refuses."""
    return signal.SIGRTMAX - 5


def stack_file() -> int:
    """The descriptor of an anonymous file for one process's stack."""
    return anonymous_file("stack")


@contextmanager
def writing_stack(file: int) -> Iterator[None]:
    """Let processes forked in this block write their stack to `file` on request, from their first instruction on."""
    faulthandler.register(_ask(), file=file, all_threads=True)
    try:
        yield
    finally:
        faulthandler.unregister(_ask())


def stack_of(pid: int, file: int) -> str:
    """The Python frames of a process forked in `writing_stack(file)`, by thread, latest call first."""
    os.ftruncate(file, 0)
    os.kill(pid, _ask())
    size, until = 0, monotonic() + _ANSWER_S
    while monotonic() < until:
        sleep(0.1)
        before, size = size, os.fstat(file).st_size
        if 0 < before == size:
            break
    lines = os.pread(file, size, 0).decode(errors="replace").splitlines()
    more = [f"  ... {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return (
        "\n".join(lines[:MOST_LINES] + more)
        or "  (the process does not answer: it is suspended, or waits in the kernel)"
    )


_RLIMIT_LOCKS: Final = 10  # asm-generic/resource.h; the kernel has ignored it since 2.4.25


def new_mark() -> int:
    """A random number by which all processes of one run can be recognised.

    It is their soft limit RLIMIT_LOCKS, which has no effect. Everything that a process starts inherits it, whatever
    becomes of its parent, environment, session and files.
    """
    _, most = resource.getrlimit(_RLIMIT_LOCKS)
    return secrets.randbelow(1 << 62 if most == resource.RLIM_INFINITY else max(1, most))


def _mark_this(mark: int) -> None:
    resource.setrlimit(_RLIMIT_LOCKS, (mark, resource.getrlimit(_RLIMIT_LOCKS)[1]))


def has_mark(pid: int, mark: int) -> bool:
    """Whether the process belongs to the run with this mark; False if it has gone, or is another user's."""
    try:
        return resource.prlimit(pid, _RLIMIT_LOCKS)[0] == mark
    except OSError:
        return False


_locks: dict[int, Any] = {}


def in_turn() -> Any:
    """A lock for what fits in several threads of this process change for the whole process. A fork has its own."""
    return _locks.setdefault(os.getpid(), threading.Lock())


class Terminated(IntEnum):
    """Why a process of a run gets a SIGTERM, as far as its monitor knows; the monitor sets it before it sends one."""

    FROM_OUTSIDE = 0
    PASSED_ON = 1
    """The monitor has got one, and asks the run to stop."""
    BY_MONITOR = 2
    """The run has ended, and the monitor ends what is left of it: nobody has asked it to stop."""


_terminated: mmap.mmap | None = None
"""One byte that the monitor and the processes that it forks have in common; None in any other process."""


def why_terminated() -> Terminated:
    """Asked in a process of a run that has got a SIGTERM."""
    return Terminated.FROM_OUTSIDE if _terminated is None else Terminated(_terminated[0])


Role = Literal["worker", "server"]
Body = Callable[[int], Any]
GRACE_S: Final = 3.0  # between SIGTERM and SIGKILL
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # linux/prctl.h
_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3
_LARGEST_IN_HEAP: Final = 32 << 20  # the most that malloc allows, and what it comes to by itself
_KEPT: Final = 1 << 30
_PIDFD_OPEN: Final = 434  # on every processor that torch is built for


class WorkerTraceback(Exception):  # the cause of an error, not an error
    """Where, in which process, an exception was raised; the cause of the exception that the monitor re-raises. `result`
    is what the process left (`EndedEarly`)."""

    def __init__(self, role: Role, number: int, text: str, result: Any) -> None:
        super().__init__(f"in {role} {number}:\n{text}")
        self.result = result


class EndedEarly(Exception):  # an end, not an error
    """A body raises it in place of the exception that has ended its work, with the result up to then."""

    def __init__(self, error: BaseException, result: Any) -> None:
        super().__init__(error)
        self.error, self.result = error, result


class ProcessEnd(NamedTuple):
    """A process's last message: what its body returned, or the exception that ended it and what it has left."""

    result: Any
    error: BaseException | None
    text: str


class Forked(NamedTuple):
    """One process, in the monitor."""

    role: Role
    number: int
    process: BaseProcess
    messages: Connection
    death: int  # a file descriptor that becomes readable when the process ends
    stack_file: int  # a file descriptor

    def stack(self) -> str:
        """The process's Python frames, latest call first; also of a process that hangs in C."""
        assert self.process.pid is not None
        return stack_of(self.process.pid, self.stack_file)

    def last_message(self) -> ProcessEnd | None:
        """The process's result or exception, once `messages` or `death` can be read; None if it died without one."""
        try:
            if not self.messages.poll():  # it died, and something that it had started holds the pipe open
                return None
            ended: ProcessEnd = pickle.loads(self.messages.recv_bytes())  # noqa: S301  # from our own fork, its pipe alone
        except (EOFError, OSError):  # an OSError: it died in the middle of the message
            return None
        return ended

    def exit_code(self) -> int | None:
        """The exit code, or minus the signal, of a process that sent no last message; if it still lives after GRACE_S
        seconds, it is killed."""
        if not wait([self.death], GRACE_S):
            self.process.kill()
            wait([self.death], GRACE_S)
        return self._code_of_ended()  # not join(timeout): that waits for what the process has started as well

    def _code_of_ended(self) -> int | None:
        """The exit code of a process that has ended. For a moment it may be unknown: when another thread starts a
        process, `multiprocessing` asks for the exit codes of all."""
        until = monotonic() + GRACE_S
        while (code := self.process.exitcode) is None and monotonic() < until:
            sleep(0.001)
        return code

    def cause(self) -> str:
        """How a process that sent no last message died, as a sentence for people; kills it as `exit_code` does."""
        code, pid = self.exit_code(), self.process.pid
        if code is not None and code < 0:
            return f"process {pid} was killed by signal {signal.Signals(-code).name}"
        return f"process {pid} ended with exit code {code} and without a result"

    def terminate(self, within_s: float) -> None:
        """Wait `within_s` seconds for its end, then kill it; close its connections."""
        if not wait([self.death], max(0.0, within_s)):
            self.process.kill()
            wait([self.death], GRACE_S)
        self._code_of_ended()
        self.forget()
        self.process.close()

    def forget(self) -> None:
        """Close this end of its pipe, and the descriptors that belong to it."""
        self.messages.close()
        os.close(self.death)
        os.close(self.stack_file)


@contextmanager
def holding_back_sigterm() -> Iterator[set[int | signal.Signals]]:
    """Block SIGTERM until the end of the block; yields the signal mask from before, for `fork`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def fork(
    role: Role,
    number: int,
    body: Body,
    threads: int,
    others: Sequence[Forked],
    mask: set[int | signal.Signals],
    mark: int,
    terminated: mmap.mmap | None = None,
) -> Forked:
    """Fork a process that runs `body(number)` with so many torch threads and the run's `mark`; in it, the monitor's
    connections to `others` are closed.

    Call it inside `holding_back_sigterm`; the new process restores its `mask` when SIGTERM has its default handler
    there. `terminated`: the byte for `why_terminated` there.
    """
    context: ForkContext = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)

    def main() -> None:
        receiving.close()
        for other in others:
            other.forget()
        _call_itself(f"{role} {number}")
        _main(role, number, body, sending)

    arguments = (main, os.getpid(), threads, mask, mark, random.getstate(), terminated)
    process = context.Process(target=_prepared, args=arguments, name=f"{role}-{number}")
    stacks = stack_file()
    end_pools()
    with in_turn(), writing_stack(stacks), _without_fork_warning():
        _start(process)
    sending.close()
    # Not process.sentinel: what a worker has started keeps that open.
    assert process.pid is not None
    return Forked(role, number, process, receiving, _pidfd(process.pid), stacks)


def _start(process: BaseProcess) -> None:
    """Start it. The library filelock, which torch requires, raises an error in whoever forks while another thread of
    this process does: then the fork is tried again."""
    until = monotonic() + GRACE_S
    while True:
        try:
            return process.start()
        except RuntimeError as error:
            if "filelock" not in str(error) or monotonic() > until:
                raise
        sleep(0.01)


@contextmanager
def _without_fork_warning() -> Iterator[None]:
    """Python 3.12 and later warn of a fork beside other threads: here their locks and pools have been seen to.

    Not by `catch_warnings`, which would put back what other threads have changed meanwhile. The fork keeps the filter:
    the loaders of its data fork as well.
    """
    warnings.filterwarnings("ignore", FORK_WARNING, DeprecationWarning)
    ours = warnings.filters[0]
    try:
        yield
    finally:
        left = [one for one in warnings.filters if one is not ours]
        warnings.filters[:] = left  # type: ignore[index]  # a list, which typeshed calls a Sequence


def _call_itself(name: str) -> None:
    """What `top` calls this process, and the usage of GPUs by worker; the kernel takes 15 bytes."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def _pidfd(pid: int) -> int:
    """A descriptor that can be read when the process has ended (pidfd_open(2), Linux 5.3).

    By the call's number, as a Python that was built for an older glibc has no `os.pidfd_open`.
    """
    descriptor = int(ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_OPEN, pid, 0))
    if descriptor >= 0:
        return descriptor
    if (number := ctypes.get_errno()) != errno.ESRCH:
        raise OSError(number, os.strerror(number))
    ended, sending = os.pipe()  # it has ended, and another thread that starts a process has asked for its exit code
    os.close(sending)
    return ended


def _prepared(
    main: Callable[[], None],
    monitor: int,
    threads: int,
    mask: set[int | signal.Signals],
    mark: int,
    python: tuple[Any, ...],
    terminated: mmap.mmap | None,
) -> None:
    global _terminated  # noqa: PLW0603  # once in this process's life
    _die_with(monitor)
    _mark_this(mark)
    _terminated = terminated
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    random_streams.begin_process(python)
    torch.set_num_threads(threads)
    keep_what_is_freed()
    gc.freeze()  # a collection would write to every inherited object, and so copy all their pages
    main()


def keep_what_is_freed() -> None:
    """Make malloc keep freed memory. A training step frees blocks that the next one needs; glibc's malloc would return
    those at the end of its heap to the system, and fault them in again: up to a thousand page faults per step."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)


def _main(role: Role, number: int, body: Body, messages: Connection) -> None:
    """A process's life. Ends by message, so that the monitor can tell an end from a death.

    Ctrl-C in a terminal reaches every process: workers end in order, servers serve them until then.
    """
    os.register_at_fork(after_in_child=messages.close)  # the pipe ends with this process, whatever it starts
    signal.signal(signal.SIGINT, signal.default_int_handler if role == "worker" else signal.SIG_IGN)
    try:
        message = pickle.dumps(ProcessEnd(body(number), None, ""))  # not Connection.send: torch would share the tensors
    except EndedEarly as end:
        message = pickle.dumps(ProcessEnd(end.result, _portable(end.error), _text(end.error)))
    except BaseException as error:  # noqa: BLE001  # everything, SystemExit too, is reported and raised by the monitor
        message = pickle.dumps(ProcessEnd(None, _portable(error), _text(error)))
    messages.send_bytes(message)
    messages.close()
    sys.stdout.flush()
    sys.stderr.flush()


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _portable(error: BaseException) -> BaseException:
    """The exception itself if it survives pickling, else a RuntimeError that says what it was."""
    try:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301  # made two lines above
        if type(again) is type(error):
            return error
    except Exception:  # noqa: BLE001  # any failure to pickle means the same: use the replacement below
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call
        os._exit(1)
