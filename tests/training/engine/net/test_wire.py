"""Frames: what arrives is what was sent, and nothing is made room for that is only claimed."""

import socket
import ssl
import threading
import tracemalloc
from collections.abc import Iterator
from time import monotonic

import pytest

from scalebook.training.engine.net.handshake import asking, serving
from scalebook.training.engine.net.wire import HEAD, MAGIC, SLICE_S, Kind, ProtocolError, Wire, WireHead

DEADLINE_S = 10.0


def connected(tls: bool) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    if not tls:
        return ours, theirs
    server, ends = serving().context, dict[str, ssl.SSLSocket]()
    thread = threading.Thread(target=lambda: ends.update(server=server.wrap_socket(theirs, server_side=True)))
    thread.start()
    ends["client"] = asking().wrap_socket(ours)
    thread.join(DEADLINE_S)
    return ends["client"], ends["server"]


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def wires(request: pytest.FixtureRequest) -> Iterator[tuple[Wire, Wire]]:
    pair = [Wire(one, DEADLINE_S) for one in connected(request.param)]
    yield pair[0], pair[1]
    for wire in pair:
        wire.close()


def test_a_frame_arrives_as_it_was_sent_in_other_pieces(wires: tuple[Wire, Wire]) -> None:
    ours, theirs = wires
    sent = [bytes(range(256)) * 4000, b"", b"x", bytes(3)]
    body = [memoryview(part) for part in sent]
    thread = threading.Thread(target=ours.send, args=(Kind.CALL, 7, b"hello", body))
    thread.start()
    head = theirs.head(5)
    assert head == WireHead(Kind.CALL, 7, 5, 1_024_004)
    assert theirs.text(head) == b"hello"
    into = [bytearray(24_000), bytearray(1_000_004)]
    theirs.body(head, [memoryview(part) for part in into])
    thread.join(DEADLINE_S)
    assert b"".join(into) == b"".join(sent)


def test_a_thousand_small_parts_are_one_body(wires: tuple[Wire, Wire]) -> None:
    ours, theirs = wires
    sent = [bytes([n % 256] * (n % 7)) for n in range(1300)]
    thread = threading.Thread(target=ours.send, args=(Kind.REPLY, 1, b"", [memoryview(part) for part in sent]))
    thread.start()
    head = theirs.head(0)
    into = [bytearray(len(part)) for part in reversed(sent)]
    assert theirs.text(head) == b""
    theirs.body(head, [memoryview(part) for part in into])
    thread.join(DEADLINE_S)
    assert b"".join(into) == b"".join(sent)


@pytest.mark.parametrize(
    "bytes_",
    [
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        HEAD.pack(MAGIC, 99, 0, 0, 0, 0),
        HEAD.pack(MAGIC, Kind.CALL, 11, 0, 0, 0),
        HEAD.pack(MAGIC, Kind.CALL, 2**32 - 1, 0, 0, 0),
        HEAD.pack(MAGIC, Kind.CALL, 0, 1, 0, 0),
    ],
    ids=["another protocol", "no kind", "a byte too much", "4 GB", "bits of no meaning"],
)
def test_what_is_no_frame_is_refused_before_room_is_made(bytes_: bytes) -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(bytes_)
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        Wire(theirs, DEADLINE_S).head(10)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()
    ours.close()
    theirs.close()


def test_a_body_that_is_not_of_the_plan_is_refused() -> None:
    ours, theirs = socket.socketpair()
    wire = Wire(theirs, DEADLINE_S)
    ours.sendall(HEAD.pack(MAGIC, Kind.CALL, 0, 0, 0, 2**60))
    head = wire.head(10)
    with pytest.raises(ProtocolError, match=f"a body of {2**60} bytes instead of 4"):
        wire.body(head, [memoryview(bytearray(4))])
    ours.close()
    theirs.close()


def test_silence_is_noticed_at_its_deadline_and_not_at_the_next_look() -> None:
    ours, theirs = socket.socketpair()
    wire, waited_s = Wire(theirs, DEADLINE_S), list[float]()
    for _ in range(5):
        began = monotonic()
        with pytest.raises(TimeoutError, match="no answer"):
            wire.head(10, within_s=SLICE_S / 10)
        waited_s.append(monotonic() - began)
    assert SLICE_S / 10 <= min(waited_s) < SLICE_S / 2
    ours.close()
    theirs.close()


def test_half_a_frame_ends_at_the_deadline_and_a_closed_one_at_once() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(HEAD.pack(MAGIC, Kind.CALL, 10, 0, 0, 0) + b"half")
    wire = Wire(theirs, 0.2)
    head = wire.head(10)
    with pytest.raises(TimeoutError):
        wire.text(head)
    with pytest.raises(TimeoutError, match="no answer"):
        wire.head(10, within_s=0.1)
    with pytest.raises(TimeoutError, match="no answer"):
        wire.head(10, lives=lambda: False)
    ours.close()
    with pytest.raises(ConnectionResetError):
        wire.head(10)
    theirs.close()
