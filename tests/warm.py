"""The warm process of a session of tests: a supervisor is forked from it, and what the supervisor starts from that.

It is a fork of pytest's process with all tests collected, before the first of them: what a supervisor (0.3 s), a fork
server (5 s) or a driver (3 s) would import is there, and no store, thread or patch of a test's. It ends with the
session. A test of how a process of ours starts, or of what it imports, is `@pytest.mark.started`.
"""

import ctypes
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
import uuid
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import IO, Any, Final, NoReturn

import pytest

from scalebook.training.base import processes as process
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.safe_path import HOME, environment
from scalebook.training.jobs import launcher, supervisor_handle
from scalebook.training.supervisor import lost_jobs, notifier, search_drivers
from tests import huge_pages
from tests.training.benches import STAND_IN

SOCKET: Final = f"\0scalebook-tests-{uuid.uuid4().hex}"
"""What it listens on; the same in all forks of a session."""
PACKET: Final = 1 << 17
IMPORTED: Final = (*launcher.PRELOAD, search_drivers.DRIVER, "optuna.storages", "optuna.samplers", "optuna.pruners")
"""What fork servers and drivers import, at the latest when they first need it; of most sessions tests have it all."""
TRIALS: Final = "tests.training.search.standin:run"
"""The runner of whose fork servers each forks many jobs: from a small process of its own that takes a third."""
PR_SET_NAME: Final = 15  # linux/prctl.h


class Started:
    """What `ensure` asks of a process: whether it has failed already, which is not told."""

    returncode = None


ForksProcesses = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="session")
def warm_process() -> ForksProcesses:
    """While the patch holds, a supervisor, and what it starts, is forked from the warm process, which a session has
    where a test of it asks for this."""
    return lambda patch: patch.setattr(supervisor_handle, "start_detached", _ask)


@pytest.fixture
def forked_processes(
    request: pytest.FixtureRequest, warm_process: ForksProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not any(request.node.get_closest_marker(name) for name in ("started", "cluster")):
        warm_process(monkeypatch)


def _ask(log: IO[bytes], module: str, *arguments: str) -> Started:
    """In place of `process.start_detached`."""
    told = {"module": module, "arguments": arguments, "umask": _umask(), "environment": environment()}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(SOCKET)
        socket.send_fds(connection, [json.dumps(told).encode()], [log.fileno()])
        connection.recv(1)  # forked
    return Started()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def begin(config: pytest.Config) -> None:
    """Fork it from this process, which runs no test yet. It is nobody's child, and no test's."""
    session = os.pidfd_open(os.getpid())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(SOCKET)
        listener.listen()
        if not (pid := os.fork()):
            if os.fork():
                os._exit(0)
            _serve(config, listener, session)
    os.close(session)
    os.waitpid(pid, 0)


def _serve(config: pytest.Config, listener: socket.socket, session: int) -> NoReturn:
    """Until the session has ended."""
    try:
        os.setsid()
        capture: Any = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # closed: who still writes there shall not write into a file of that number
        for module in (launcher, lost_jobs, notifier, search_drivers):
            module.start = _start  # type: ignore[attr-defined]
        supervisor_handle.start_detached = _ask  # type: ignore[attr-defined, assignment]
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(session, selectors.EVENT_READ)
            first = True
            while session not in (ready := {key.fd for key, _ in selector.select()}):
                if first:
                    huge_pages.collapse()
                    first = False
                for child in ready - {listener.fileno()}:
                    selector.unregister(child)
                    os.waitid(os.P_PIDFD, child, os.WEXITED)
                    os.close(child)
                if listener.fileno() in ready:
                    selector.register(_accept(listener), selectors.EVENT_READ)
    except BaseException:  # noqa: BLE001 - the top of a process
        traceback.print_exc()
    finally:
        os._exit(0)


def _accept(listener: socket.socket) -> int:
    """Fork what is asked for; returns its pidfd."""
    connection, _ = listener.accept()
    with connection:
        packet, (log,), _, _ = socket.recv_fds(connection, PACKET, 1)
        told = json.loads(packet)
        if STAND_IN not in told["arguments"]:
            for name in IMPORTED:
                importlib.import_module(name)
        if not (pid := os.fork()):
            os.environ.clear()
            os.chdir(HOME)
            os.umask(told["umask"])
            _become(told["module"], told["arguments"], log, leads=True, environ=told["environment"])
        os.close(log)
    return os.pidfd_open(pid)


def _start(module: str, *arguments: str, **options: Any) -> ProcessId:
    """In place of `process.start`, in what is forked here, with its options."""
    if TRIALS in arguments:
        return process.start(module, *arguments, **options)
    if not (pid := os.fork()):
        _become(module, arguments, **options)
    return ProcessId.of(pid)


def _become(
    module: str,
    arguments: tuple[str, ...],
    log: int | None = None,
    socket: int | None = None,
    leads: bool = False,
    environ: Mapping[str, str] = MappingProxyType({}),
    base: Mapping[str, str] | None = None,
) -> NoReturn:
    """Be `python -m MODULE ARGUMENTS`, to its end: in the fork."""
    code: Any = 1
    try:
        if leads:
            os.setsid()
        if base is not None:
            os.environ.clear()
        _settle_in(module, log, socket, {**(base or {}), **environ})
        sys.argv[1:] = arguments
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - the top of a process: all goes to the log and the exit code
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _settle_in(module: str, log: int | None, socket: int | None, environ: Mapping[str, str]) -> None:
    """Descriptors, signals, warnings and threads as a new process has them, and its name."""
    if log is not None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
    if socket is not None:
        os.dup2(socket, 3)
    os.closerange(3 if socket is None else 4, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    os.environ.update(environ)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.resetwarnings()
    for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning, RuntimeWarning):
        warnings.simplefilter("ignore", category)
    if "torch" in sys.modules and os.environ.get("OMP_NUM_THREADS") == "1":
        sys.modules["torch"].set_num_threads(1)
    name = module.rpartition(".")[2].encode()
    ctypes.CDLL(None).prctl(PR_SET_NAME, name, 0, 0, 0)
