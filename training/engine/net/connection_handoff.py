"""One port for all workers: a process listens there, reads from each connection whom it is for, and hands it over.

That header is neither secret nor authenticated: the process that gets the connection makes the handshake, with or
without TLS.
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
"""Most bytes of a message between two processes of this node."""
_CUT: Final = 150
"""Most characters of a reason in such a message."""
STRANGERS: Final = 256
"""Connections that have not yet sent their header; one more closes the oldest."""
_TURNED_AWAY: Final = 4  # at a time, of those whose worker was given up


class Listener(Protocol):
    """Where connections come from: a listening socket, or a `ConnectionHandoff`."""

    def settimeout(self, timeout_s: float | None, /) -> None: ...

    def accept(self) -> tuple[socket.socket, object]: ...

    def fileno(self) -> int: ...


class ProcessDead(Exception):  # news, not an error
    """The node of the connecting process reports that this process is dead."""

    def __init__(self, generation: int, why: str) -> None:
        super().__init__(why)
        self.generation, self.why = generation, why


class ConnectionHandoff:
    """Passes connections from the process that listens to one other process. Made before both are forked; a process
    that replaces the second one reads on where it stopped."""

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._outside.setblocking(False)

    def close(self) -> None:
        """Close this process's descriptors."""
        self._inside.close()
        self._outside.close()

    # --- by who listens at the port ----------------------------------------------------------------------------------

    def hand_over(self, connection: socket.socket) -> None:
        """Give the connection away. It is closed if too many are waiting."""
        with connection, suppress(OSError):  # whoever has connected tries again
            socket.send_fds(self._outside, [b"{}"], [connection.fileno()])

    def tell_death(self, generation: int, why: str) -> None:
        """Report that the connecting process is dead."""
        with suppress(OSError):  # then its silence tells
            self._outside.send(json.dumps([generation, why[:_CUT]], ensure_ascii=True).encode())

    # --- as a listener -----------------------------------------------------------------------------------------------

    def settimeout(self, timeout_s: float | None, /) -> None:
        self._inside.settimeout(timeout_s)

    def accept(self) -> tuple[socket.socket, object]:
        """The next connection. Raises `ProcessDead` if that is reported instead."""
        text, descriptors, _, _ = socket.recv_fds(self._inside, _MOST, 1)
        if not text:
            raise OSError("channel: the process that listened at the port has ended")
        if not descriptors:
            generation, why = json.loads(text)
            raise ProcessDead(generation, why)
        try:
            return socket.socket(fileno=descriptors[0]), None
        except OSError:
            os.close(descriptors[0])
            raise

    def fileno(self) -> int:
        return self._inside.fileno()


class AddressedConnection(NamedTuple):
    """A connection whose header has not arrived yet."""

    connection: socket.socket
    until: float


def address(number: int) -> bytes:
    """The header of a connection for this handoff."""
    return ADDRESS.pack(_MAGIC, number)


def destination_of(header: bytes, count: int) -> int | None:
    """The number of the handoff that a header names; None if there is none."""
    magic, number = ADDRESS.unpack(header)
    return number if magic == _MAGIC and number < count else None


def turn_away(_hello: Hello) -> NoReturn:
    """Refuse for good: raises `Refused`."""
    raise Refused(GIVEN_UP)


class PortDispatcher:
    """Accepts connections at the port and hands each over, after reading its header and nothing else.

    `given_up(number)`: whether no process uses that handoff any more. Such a connection gets a handshake here, and
    `check` (as in `admit`) then refuses it.
    """

    def __init__(
        self,
        listener: socket.socket,
        handoffs: Sequence[ConnectionHandoff],
        secret: Secret,
        tls: ServerTls | None,
        given_up: Callable[[int], bool],
        check: Callable[[Hello], int] = turn_away,
    ) -> None:
        self._listener, self._handoffs, self._secret, self._tls = listener, handoffs, secret, tls
        self._given_up, self._check = given_up, check
        self._strangers: dict[int, AddressedConnection] = {}  # by descriptor, the oldest first
        self._away = threading.BoundedSemaphore(_TURNED_AWAY)

    def dispatch_until(self, is_over: Callable[[], bool]) -> None:
        """Serve until `is_over()`, which is asked about four times a second."""
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
        number = destination_of(header, len(self._handoffs)) if len(header) == ADDRESS.size else None
        if number is None:
            connection.close()
        elif self._given_up(number):
            self._turn_away(connection)
        else:
            self._handoffs[number].hand_over(connection)

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
