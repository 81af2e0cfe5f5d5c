"""Who listens at the port: hands on what says whom it is for, and closes everything else."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from scalebook.training.engine.net import connection_handoff
from scalebook.training.engine.net.connection_handoff import ConnectionHandoff, PortDispatcher, address
from scalebook.training.engine.net.wire import listening
from tests.training.engine.net.far import LOOPBACK, SECRET


@pytest.fixture
def handoffs(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, list[ConnectionHandoff]]]:
    """The port, and two handoffs, of which nobody is behind the second any more."""
    monkeypatch.setattr(connection_handoff, "STRANGERS", 2)
    listener, made, over = listening(LOOPBACK), [ConnectionHandoff(), ConnectionHandoff()], threading.Event()
    keeper = PortDispatcher(listener, made, SECRET, None, lambda number: number == 1)
    thread = threading.Thread(target=keeper.dispatch_until, args=[over.is_set])
    thread.start()
    made[0].settimeout(5)
    yield listener.getsockname()[1], made
    over.set()
    thread.join(5)
    listener.close()
    for one in made:
        one.close()


def come(port: int, says: bytes = b"") -> socket.socket:
    connection = socket.create_connection((LOOPBACK, port), 5)
    if says:
        connection.sendall(says)
    return connection


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_what_follows_the_address_is_for_whom_it_names(handoffs: tuple[int, list[ConnectionHandoff]]) -> None:
    with come(handoffs[0], address(0) + b"more") as near:
        far, _ = handoffs[1][0].accept()
        with far:
            assert far.recv(8) == b"more"
            far.sendall(b"yes")
        assert near.recv(8) == b"yes"


@pytest.mark.parametrize("says", [b"S", address(0)[:7], address(2), b"GET / HT"], ids=["1", "7", "handoff", "http"])
def test_anything_else_is_closed_at_once(handoffs: tuple[int, list[ConnectionHandoff]], says: bytes) -> None:
    with come(handoffs[0], says) as connection:
        began, used = time.monotonic(), time.process_time()
        assert is_closed(connection)
        assert time.monotonic() - began < 4
        assert time.process_time() - used < 1


def test_the_oldest_that_says_nothing_makes_room(handoffs: tuple[int, list[ConnectionHandoff]]) -> None:
    with come(handoffs[0]) as oldest, come(handoffs[0]), come(handoffs[0]):
        assert is_closed(oldest)
    with come(handoffs[0], address(0)):
        handoffs[1][0].accept()[0].close()
