"""Frames over a stream: a header of fixed size, a short text, raw bytes. Also makes sockets.

There is no pickle, and no memory is allocated for what the other side only announces: a text has a maximum, and a body
goes into memory that exists already.
"""

import math
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from time import monotonic, perf_counter
from typing import Final, NamedTuple

MAGIC: Final = b"SCB1"
HEAD: Final = struct.Struct("<4sB3xIIQQ")
SLICE_S: Final = 0.25
"""How often a thread that waits for a frame checks that the other side lives."""
LEAST_RATE: Final = 100_000
"""Bytes per second: a body's deadline is the wire's, plus one second for each of these."""
_SMALL: Final = 16_384  # bytes: the most that TLS encrypts at once
_MOST_BUFFERS: Final = 512  # of one call of the system, which allows 1024
DEAD_S: Final = 5.0
"""A side that is silent for so long is dead to the other."""
PULSE_S: Final = 0.5
"""Seconds between two heartbeats."""
CONNECT_S: Final = 2.0
LEAST_S: Final = 0.25
_WAITING: Final = 16  # connections that nobody has taken yet


class Kind(IntEnum):
    """The kind of a frame."""

    NONCE = 1
    PROOF = 2
    HELLO = 3
    WELCOME = 4
    REFUSED = 5
    CALL = 6
    REPLY = 7
    ERROR = 8
    EVENT = 9  # something happened while a call waits; ANSWER lets it go on
    ANSWER = 10
    PING = 11
    PONG = 12


class ProtocolError(ConnectionError):
    """The other side has violated the protocol; the connection cannot be used any more."""


class WireHead(NamedTuple):
    """A frame's header. `number`: of the call it belongs to. `text`, `body`: lengths in bytes."""

    kind: Kind
    number: int
    text: int
    body: int


class Wire:
    """One connection, used by one thread at a time. `deadline_s`: for each frame sent, and for each frame received once
    its first byte is there. After a ConnectionError or TimeoutError the connection cannot be used any more."""

    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self._socket, self._deadline_s = connection, deadline_s
        self._is_tls = isinstance(connection, ssl.SSLSocket)

    def send(self, kind: Kind, number: int = 0, text: bytes = b"", body: Sequence[memoryview] = ()) -> None:
        """Send a frame. `body`: contiguous bytes, which are not copied."""
        size = sum(map(len, body))
        until = monotonic() + self._deadline_s + size / LEAST_RATE
        views = [
            memoryview(HEAD.pack(MAGIC, kind, len(text), 0, number, size) + text),
            *[buffer for buffer in body if len(buffer)],
        ]
        if self._is_tls:
            views = _merged(views)
        index = 0
        while index < len(views):
            self._socket.settimeout(max(1e-3, until - monotonic()))
            index = self._sent(views, index)

    def _sent(self, views: list[memoryview], index: int) -> int:
        """Send a part of what is left from view `index` on; returns the index to go on from."""
        if self._is_tls:
            return _after(views, index, self._socket.send(views[index]))
        return _after(views, index, self._socket.sendmsg(views[index : index + _MOST_BUFFERS]))

    def head(self, most_text: int, lives: Callable[[], bool] = lambda: True, within_s: float | None = None) -> WireHead:
        """Read the next frame's header; waits for its first byte while the other side `lives()`, or for `within_s`."""
        bytes_ = bytearray(HEAD.size)
        until = None if within_s is None else monotonic() + within_s
        got = 0
        while not got:
            left_s = math.inf if until is None else until - monotonic()
            if not lives() or left_s <= 0:
                raise TimeoutError("channel: no answer")
            self._socket.settimeout(min(SLICE_S, left_s))
            try:
                got = self._socket.recv_into(bytes_)
            except TimeoutError:
                continue
            if not got:
                raise ConnectionResetError("channel: the other side has closed the connection")
        self._fill([memoryview(bytes_)[got:]], HEAD.size)
        magic, kind, text, zero, number, body = HEAD.unpack(bytes_)
        if magic != MAGIC or bytes_[5:8] != b"\0\0\0" or zero or kind not in Kind._value2member_map_:
            raise ProtocolError("channel: received no frame of this protocol")
        if text > most_text:
            raise ProtocolError(f"channel: received a text of {text} bytes, but at most {most_text} are allowed")
        return WireHead(Kind(kind), number, text, body)

    def text(self, head: WireHead) -> bytes:
        """Read the text of the frame whose header was read last."""
        text = bytearray(head.text)
        self._fill([memoryview(text)], head.text)
        return bytes(text)

    def body(self, head: WireHead, into: Sequence[memoryview]) -> None:
        """Read the body of the frame whose text was read last. It must have as many bytes as `into`."""
        size = sum(map(len, into))
        if head.body != size:
            raise ProtocolError(f"channel: received a body of {head.body} bytes instead of {size}")
        self._fill(into, size)

    def _fill(self, into: Sequence[memoryview], size: int) -> None:
        until = monotonic() + self._deadline_s + size / LEAST_RATE
        views, index = [buffer for buffer in into if len(buffer)], 0
        while index < len(views):
            self._socket.settimeout(max(1e-3, until - monotonic()))
            if self._is_tls:
                received = self._socket.recv_into(views[index])
            else:
                received = self._socket.recvmsg_into(views[index : index + _MOST_BUFFERS])[0]
            if not received:
                raise ConnectionResetError("channel: the other side has closed the connection")
            index = _after(views, index, received)

    def close(self) -> None:
        """Close the connection; only by the thread that uses it."""
        self._socket.close()


def _merged(views: list[memoryview]) -> list[memoryview]:
    """The views with small ones copied together, since each is encrypted by itself."""
    merged: list[memoryview] = []
    small = bytearray()
    for view in views:
        if len(view) < _SMALL:
            small += view
            continue
        if small:
            merged.append(memoryview(bytes(small)))
            small.clear()
        merged.append(view)
    return [*merged, memoryview(bytes(small))] if small else merged


def _after(views: list[memoryview], index: int, done: int) -> int:
    """The index to go on from after `done` more bytes from view `index` on. A partly sent view is replaced by its
    rest."""
    while done and done >= len(views[index]):
        done -= len(views[index])
        index += 1
    if done:
        views[index] = views[index][done:]
    return index


def listening(host: str, port: int = 0) -> socket.socket:
    """A socket that listens at this address only; port 0 lets the kernel choose one. OSError if it is taken."""
    address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(address[0], socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address[4])
        listener.listen(_WAITING)
    except OSError:
        listener.close()
        raise
    return listener


def connected(host: str, port: int, within_s: float = CONNECT_S) -> socket.socket:
    """A connected socket. OSError if nobody answers in time, `CONNECT_S` at most."""
    connection = socket.create_connection((host, port), min(CONNECT_S, max(LEAST_S, within_s)))
    set_up(connection)
    return connection


def set_up(connection: socket.socket) -> None:
    """Send without delay (TCP_NODELAY), and fail when sent data stays unacknowledged for too long."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(DEAD_S * 1000))


def loopback_round_trips(sizes: Sequence[int], times: int, within_s: float) -> list[list[float]]:
    """Seconds of round trips of frames of these sizes, each so many times, to another thread over the loopback.
    OSError if the machine lets nobody connect there; `within_s`: of each wait."""
    with listening("127.0.0.1") as listener:
        near = connected(*listener.getsockname())
        far, _ = listener.accept()
        set_up(far)
        wires = Wire(near, within_s), Wire(far, within_s)
        echo = threading.Thread(target=_echo, args=(wires[1], sizes, times), daemon=True)
        echo.start()
        try:
            return [_round_trips(wires[0], nbytes, times) for nbytes in sizes]
        finally:
            echo.join(within_s)
            for wire in wires:
                wire.close()


def _round_trips(wire: Wire, nbytes: int, times: int) -> list[float]:
    content, seconds = memoryview(bytearray(nbytes)), list[float]()
    for _ in range(times):
        began = perf_counter()
        wire.send(Kind.CALL, body=[content])
        _receive(wire, content)
        seconds.append(perf_counter() - began)
    return seconds


def _echo(wire: Wire, sizes: Sequence[int], times: int) -> None:
    for nbytes in sizes:
        content = memoryview(bytearray(nbytes))
        for _ in range(times):
            _receive(wire, content)
            wire.send(Kind.REPLY, body=[content])


def _receive(wire: Wire, into: memoryview) -> None:
    head = wire.head(0)
    wire.text(head)
    wire.body(head, [into])
