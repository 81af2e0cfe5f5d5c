"""The process that drivers of searches are forked from in tests: everything imported, as `python -m ...driver.main` has
it after 3 s.

A supervisor starts `tests.training.search.forked_driver` instead, which hands its output and environment over and ends
when the driver has. `python -m tests.training.search.warm_drivers SESSION` listens on the socket that is its input. It
serves all forks of a session of tests, and ends when the process SESSION has ended, its drivers with it.
"""

import gc
import importlib
import json
import os
import selectors
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from scalebook.training.base.files.lossy_output import forgive
from scalebook.training.jobs.process import die_with_parent
from scalebook.training.search.driver.driver_loop import drive
from scalebook.training.search.search_folder import SearchFolder

PACKET = 1 << 17
IMPORTED = ("mlflow.store.tracking.sqlalchemy_store", "optuna.storages", "optuna.samplers", "optuna.pruners")
"""What a driver imports when it first needs it, which is at once."""


def serve(listener: socket.socket, session: int) -> None:
    """Until the process `session` has ended."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ, None)
    selector.register(session, selectors.EVENT_READ, None)
    while True:
        for key, _ in selector.select():
            if key.fd == session:
                return
            if key.data is None:
                connection, _ = listener.accept()
                pid = _start(connection)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
            else:
                selector.unregister(key.fd)
                os.close(key.fd)
                _reap(*key.data)


def _reap(pid: int, connection: socket.socket) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with connection:
        connection.send(str(code).encode())


def _start(connection: socket.socket) -> int:
    packet, handles, _, _ = socket.recv_fds(connection, PACKET, 2)
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_the_driver(json.loads(packet), handles, me)
    for handle in handles:
        os.close(handle)
    return pid


def _be_the_driver(told: dict[str, Any], handles: list[int], parent: int) -> None:
    """In the fork: never returns."""
    code = 1
    try:
        os.setsid()
        die_with_parent(parent)
        for number, handle in enumerate(handles, start=1):
            os.dup2(handle, number)
        os.closerange(3, max(int(name) for name in os.listdir("/proc/self/fd")) + 1)
        os.environ.clear()
        os.environ.update(told["environment"])
        os.chdir(told["folder"])
        os.umask(told["umask"])
        forgive()
        code = drive(SearchFolder(Path(told["search"])))
    except BaseException:  # noqa: BLE001 - this is the top of the process: everything goes to the log and the exit code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    session = os.pidfd_open(int(sys.argv[1]))
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    serve(socket.socket(fileno=os.dup(0)), session)
