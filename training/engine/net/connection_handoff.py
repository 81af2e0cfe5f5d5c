"""One port for all: a process of its own listens there; each connection says first for whom it comes, and is handed on
to that process.

What it says is a header that protects nothing: whoever takes the connection has it greeted, over TLS or without.
"""

import json
import os
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final, NamedTuple, NoReturn, Protocol

from scalebook.training.engine.net.handshake import GIVEN_UP, GREETING_S, Hello, Refused, Secret, ServerTls, admit
from scalebook.training.engine.net.wire import SLICE_S

ADDRESS: Final = struct.Struct("<4sI")
_MAGIC: Final = b"SCBw"
_MOST: Final = 1024
"""Bytes of a letter between two processes here."""
_CUT: Final = 150
"""Characters of a reason in one."""
STRANGERS: Final = 256
"""Connections that have not said whom they are for; the oldest is closed for one more."""
_TURNED_AWAY: Final = 4  # at a time, of those whose worker was given up


class Listener(Protocol):
    """Where connections come from: a socket that listens, or a handoff to which they are handed on."""

    def settimeout(self, timeout_s: float | None, /) -> None: ...

    def accept(self) -> tuple[socket.socket, object]: ...

    def fileno(self) -> int: ...


class ProcessDead(Exception):  # news, not an error
    """The process whose connections come here is known to be dead, by its own machine."""

    def __init__(self, incarnation: int, why: str) -> None:
        super().__init__(why)
        self.incarnation, self.why = incarnation, why


class ConnectionHandoff:
    """From who listens at the port to one process; made before both are forked. A process that takes its place reads
    on where the last one was."""

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._outside.setblocking(False)

    def close(self) -> None:
        """This process's handles."""
        self._inside.close()
        self._outside.close()

    # --- by who listens at the port ----------------------------------------------------------------------------------

    def hand_over(self, connection: socket.socket) -> None:
        """It is this process's no more. Where too many wait for theirs it is closed."""
        with connection, suppress(OSError):  # whoever has connected tries again
            socket.send_fds(self._outside, [b"{}"], [connection.fileno()])

    def tell_death(self, incarnation: int, why: str) -> None:
        """Of the process that comes from there."""
        with suppress(OSError):  # then its silence tells
            self._outside.send(json.dumps([incarnation, why[:_CUT]], ensure_ascii=True).encode())

    # --- as a listener -----------------------------------------------------------------------------------------------

    def settimeout(self, timeout_s: float | None, /) -> None:
        self._inside.settimeout(timeout_s)

    def accept(self) -> tuple[socket.socket, object]:
        """`ProcessDead` instead, where that is told."""
        text, descriptors, _, _ = socket.recv_fds(self._inside, _MOST, 1)
        if not text:
            raise OSError("channel: nobody is at the port any more")
        if not descriptors:
            incarnation, why = json.loads(text)
            raise ProcessDead(incarnation, why)
        try:
            return socket.socket(fileno=descriptors[0]), None
        except OSError:
            os.close(descriptors[0])
            raise

    def fileno(self) -> int:
        return self._inside.fileno()


class AddressedConnection(NamedTuple):
    """A connection that has said which handoff it is for, or has not yet."""

    connection: socket.socket
    until: float


def address(number: int) -> bytes:
    """What a connection for this handoff says first."""
    return ADDRESS.pack(_MAGIC, number)


def gate_of(header: bytes, gates: int) -> int | None:
    """Which gate it names; None for none."""
    magic, number = ADDRESS.unpack(header)
    return number if magic == _MAGIC and number < gates else None


def turn_away(_hello: Hello) -> NoReturn:
    """For good. `Refused`."""
    raise Refused(GIVEN_UP)


class PortDispatcher:
    """Reads no more of a connection than whom it is for, which comes whole or not at all. `given_up(number)`: nobody is
    behind that gate any more; who comes is told so by `check`, as `admit` has it, once it has shown the key."""

    def __init__(
        self,
        listener: socket.socket,
        gates: Sequence[ConnectionHandoff],
        secret: Secret,
        tls: ServerTls | None,
        given_up: Callable[[int], bool],
        check: Callable[[Hello], int] = turn_away,
    ) -> None:
        self._listener, self._gates, self._secret, self._tls = listener, gates, secret, tls
        self._given_up, self._check = given_up, check
        self._strangers: dict[int, AddressedConnection] = {}  # by descriptor, the oldest first
        self._away = threading.BoundedSemaphore(_TURNED_AWAY)

    def dispatch_until(self, is_over: Callable[[], bool]) -> None:
        """Until then. Looks about four times a second."""
        self._listener.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not is_over():
                for key, _ in selector.select(SLICE_S):
                    if key.fd == self._listener.fileno():
                        self._accept(selector)
                    elif key.fd in self._strangers:
                        self._hear(selector, key.fd)
                late = [fd for fd, stranger in self._strangers.items() if monotonic() > stranger.until]
                for fd in late:
                    self._forget(selector, fd).close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has left before it was taken
            return
        connection.setblocking(False)
        if len(self._strangers) >= STRANGERS:
            self._forget(selector, next(iter(self._strangers))).close()
        self._strangers[connection.fileno()] = AddressedConnection(connection, monotonic() + GREETING_S)
        selector.register(connection, selectors.EVENT_READ)

    def _forget(self, selector: selectors.BaseSelector, fd: int) -> socket.socket:
        selector.unregister(fd)
        return self._strangers.pop(fd).connection

    def _hear(self, selector: selectors.BaseSelector, fd: int) -> None:
        connection = self._strangers[fd].connection
        try:
            header = connection.recv(ADDRESS.size)
        except BlockingIOError:
            return
        except OSError:
            header = b""
        self._forget(selector, fd)
        number = gate_of(header, len(self._gates)) if len(header) == ADDRESS.size else None
        if number is None:
            connection.close()
        elif self._given_up(number):
            self._turn_away(connection)
        else:
            self._gates[number].hand_over(connection)

    def _turn_away(self, connection: socket.socket) -> None:
        if not self._away.acquire(blocking=False):
            connection.close()
            return

        def greet() -> None:
            try:
                with suppress(OSError):
                    admit(connection, self._secret, self._tls, self._check)[0].close()
            finally:
                self._away.release()

        threading.Thread(target=greet, name="turned away", daemon=True).start()
