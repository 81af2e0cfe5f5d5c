"""Ports on the loopback interface."""

import http.client
import socket

LOOPBACK = "127.0.0.1"


def free_port(preferred: int, taken: frozenset[int] = frozenset(), tries: int = 100) -> int:
    """The first port from `preferred` upwards that nothing listens on and that is not in `taken`.

    Between this answer and its use another program may take the port: whoever uses it must look whether it is its own
    server that listens there, and ask again if not. Raises OSError where all `tries` ports are taken.
    """
    for port in range(preferred, min(preferred + tries, 65536)):
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no free port between {preferred} and {preferred + tries - 1} on {LOOPBACK}")


def is_free(port: int) -> bool:
    """Whether nothing listens on it."""
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
