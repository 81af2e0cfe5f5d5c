"""Who listens at the one port of a run: a process of its own, which hands each connection on to whom it is for."""

import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final, NoReturn

from scalebook.training.ps.channel.door import GIVEN_UP
from scalebook.training.ps.channel.gate import ADDRESS, Addressed, Gate, gate_of
from scalebook.training.ps.channel.greeting import GREETING_S, Hello, Refused, Secret, Serving, admit
from scalebook.training.ps.channel.wire import SLICE_S

STRANGERS: Final = 256
"""Connections that have not said whom they are for; the oldest is closed for one more."""
_TURNED_AWAY: Final = 4  # at a time, of those whose worker was given up


def turn_away(_hello: Hello) -> NoReturn:
    """For good. `Refused`."""
    raise Refused(GIVEN_UP)


class Porter:
    """Reads no more of a connection than whom it is for, which comes whole or not at all. `given_up(number)`: nobody is
    behind that gate any more; who comes is told so by `check`, as `admit` has it, once it has shown the key."""

    def __init__(
        self,
        listener: socket.socket,
        gates: Sequence[Gate],
        secret: Secret,
        tls: Serving | None,
        given_up: Callable[[int], bool],
        check: Callable[[Hello], int] = turn_away,
    ) -> None:
        self._listener, self._gates, self._secret, self._tls = listener, gates, secret, tls
        self._given_up, self._check = given_up, check
        self._strangers: dict[int, Addressed] = {}  # by descriptor, the oldest first
        self._away = threading.BoundedSemaphore(_TURNED_AWAY)

    def keep(self, is_over: Callable[[], bool]) -> None:
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
        self._strangers[connection.fileno()] = Addressed(connection, monotonic() + GREETING_S)
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
