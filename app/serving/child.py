"""A server process that `scalebook ui` owns: start, health check, end; in a session of its own, with a log."""

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from scalebook.training.base import ProcessId, processes

LOOPBACK = "127.0.0.1"


def free_port(preferred: int, taken: frozenset[int] = frozenset(), tries: int = 100) -> int:
    """The first port from `preferred` upwards that nothing listens on and that is not in `taken`.

    Another program may take the port before it is used: the caller must check that its own server listens there, and
    call again if not. Raises OSError if all `tries` ports are taken.
    """
    for port in range(preferred, min(preferred + tries, 65536)):
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no free port between {preferred} and {preferred + tries - 1} on {LOOPBACK}")


def is_free(port: int) -> bool:
    """Whether nothing listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def answers(port: int, path: str, timeout_s: float = 2.0) -> bool:
    """Whether a server on `port` answers GET `path` with 200."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


OWNER = "SCALEBOOK_OWNER"
"""Environment variable of a server: the pid of the process that has started it."""
LEFTOVER_S = 5.0
"""Deadline for the end of a server whose owner was killed."""


def end_with_owner() -> None:
    """In a server: have the kernel end it when the main thread of its owner ends, also by kill -9. What the server has
    started itself, such as a supervisor, goes on. Without an owner it does nothing."""
    if owner := os.environ.pop(OWNER, ""):
        processes.die_with_parent(int(owner))


class ServerDied(RuntimeError):
    """A server ended, or did not answer in time; the message names it and its log."""


@dataclass
class Child:
    """A server process. `command` makes its command line for a port; `health` is a path that answers 200 once it is up.

    The process leads its own session, so that Ctrl+C in the terminal reaches only its owner, who then calls
    `terminate`. It is to call `end_with_owner` first.
    """

    name: str
    command: Callable[[int], Sequence[str]]
    health: str
    preferred_port: int
    log: Path
    env: Mapping[str, str]
    cwd: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    starts: list[float] = field(default_factory=list)
    """Monotonic times of the starts, s."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def id(self) -> ProcessId | None:
        return ProcessId.of(self.process.pid) if self.process is not None and self.running else None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, port: int | None = None, taken: frozenset[int] = frozenset()) -> None:
        """Start on `port`, or on the first free one from the preferred one upwards. Returns at once."""
        assert not self.running, f"{self.name} is already running"
        self.port = port or free_port(self.preferred_port, taken)
        self.starts.append(time.monotonic())
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                list(self.command(self.port)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self.env, OWNER: str(os.getpid())},
                cwd=self.cwd,
                start_new_session=True,
            )

    def wait_until_up(self, deadline_s: float = 60.0, tries: int = 3) -> None:
        """Return once the server answers. If another program has taken its port, start again on the next free one.

        Raises ServerDied after `tries` deaths for other reasons, or after the deadline.
        """
        deadline = time.monotonic() + deadline_s
        while time.monotonic() < deadline:
            if not self.running:
                tries -= is_free(self.port)
                if tries <= 0:
                    raise ServerDied(f"{self.name} ended during startup. Its log: {self.log}")
                self.start(taken=frozenset({self.port}))
            # An answer alone proves nothing: another server may sit on the port while ours is about to give up.
            if answers(self.port, self.health) and self._listens():
                return
            time.sleep(0.1)
        raise ServerDied(f"{self.name} did not answer within {deadline_s:.0f} s. Its log: {self.log}")

    def _listens(self) -> bool:
        """Whether this process listens on the port; the kernel allows one at a time."""
        assert self.process is not None
        try:
            connections = psutil.Process(self.process.pid).net_connections("tcp4")
        except psutil.NoSuchProcess:
            return False
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == self.port for connection in connections
        )

    def terminate(self, grace_s: float = 5.0) -> None:
        """Terminate the process, then kill what is left of its session. No effect if it has ended already."""
        if self.process is None:
            return
        if self.running:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):  # then it is killed with its group below
                self.process.wait(grace_s)
        kill_group(self.process.pid)
        self.process.wait(5.0)


def kill_group(leader: int) -> None:
    """SIGKILL every process of the session that `leader` leads; no effect without one."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def end_leftover(process: ProcessId, logs: Sequence[Path]) -> None:
    """End a server whose owner was killed and that still holds its port; return when it is gone.

    A process that writes to none of these `logs` is not our server, whatever the record says: it is left alone.
    """
    if not process.writes_to(logs):
        return
    kill_group(process.pid)
    deadline = time.monotonic() + LEFTOVER_S
    while process.alive() and time.monotonic() < deadline:
        time.sleep(0.02)
