"""How sockets of a channel are made and set."""

import socket
from typing import Final

DEAD_S: Final = 5.0
"""Whoever is silent for so long is dead to the other side."""
PULSE_S: Final = 0.5
"""Between two signs of life."""
CONNECT_S: Final = 2.0
LEAST_S: Final = 0.25
_WAITING: Final = 16  # connections that nobody has taken yet


def listening(host: str, port: int = 0) -> socket.socket:
    """A socket that listens at this address alone; with port 0 the kernel chooses one. OSError where it is taken."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(found[0], socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(found[4])
        listener.listen(_WAITING)
    except OSError:
        listener.close()
        raise
    return listener


def connected(host: str, port: int, within_s: float = CONNECT_S) -> socket.socket:
    """OSError where nobody answers in time, which is `CONNECT_S` at most."""
    connection = socket.create_connection((host, port), min(CONNECT_S, max(LEAST_S, within_s)))
    set_up(connection)
    return connection


def set_up(connection: socket.socket) -> None:
    """No waiting for more to send; and what nobody has received for so long is known to be lost."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(DEAD_S * 1000))
