"""The connecting side: makes each call exactly once, over connections that may break, and sends heartbeats."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

from scalebook.training.engine.net.connection_handoff import address
from scalebook.training.engine.net.handshake import HandshakeResult, Hello, Refused, Secret, Use, asking, greet
from scalebook.training.engine.net.wire import (
    CONNECT_S,
    DEAD_S,
    PULSE_S,
    Kind,
    ProtocolError,
    Wire,
    WireHead,
    connected,
)
from scalebook.training.engine.worker.worker_end import WrittenError

FIRST_BACKOFF_S: Final = 0.02
MOST_BACKOFF_S: Final = 1.0
ANSWER_S: Final = 1.0
"""Timeout of a monitor's call; the monitor also has to watch its processes."""
ERRORS: Final[dict[str, type[Exception]]] = {
    one.__name__: one for one in (TimeoutError, OSError, RuntimeError, TypeError, ValueError, WrittenError)
}
"""Exceptions of the other side that are raised here as the same type; any other becomes a RuntimeError."""
Buffers = Sequence[memoryview]


class ChannelLost(ConnectionError):
    """The server was unreachable or silent for too long. It counts this worker as dead, or soon will."""


class ProxyAddress(NamedTuple):
    """Where a worker's proxy listens, and the credentials to connect."""

    host: str
    port: int
    secret: Secret
    tls: bool
    destination: int | None = None
    """The number of the handoff, where one port serves all workers."""


class Channel:
    """Makes calls from one thread at a time, or from within another call's `meanwhile`.

    Each call has a number. When a connection breaks, the call is sent again over the next one, and the other side
    carries out each number once. A thread sends heartbeats over a connection of its own, so a worker that computes for
    long does not count as dead.
    """

    def __init__(
        self,
        reach: ProxyAddress,
        hello: Hello,
        most_text: int,
        notes: Callable[[], Any] = lambda: None,
        lost: Callable[[str], None] = lambda why: None,
        begins: Callable[[int], None] = lambda generation: None,
    ) -> None:
        """`lost` is called when the other side is lost for good: by a call before it raises, or at once by the pulse
        thread. It may end this process. If `hello` has no generation, `open` requests one and passes it to
        `begins`."""
        self._lost_for_good, self._begins = lost, begins
        self._reach, self._hello, self._most_text = reach, hello, most_text
        self.notes = notes
        """Plain values that are sent with each call."""
        self._context: ssl.SSLContext | None = asking() if reach.tls else None
        self._wire: Wire | None = None
        self._raw: socket.socket | None = None  # the same connection, to be cut by any thread
        self._number, self._turn = 0, threading.RLock()
        self._failing_since: float | None = None
        self._answer_s: float | None = None
        self._lost = ""
        self._closing = threading.Event()
        self._first: Channel | None = None
        self._pulse = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def open(self, within_s: float, pulse: bool = True) -> None:
        """Connect, and retry for `within_s` seconds while the other side starts up. Raises `Refused` or `ChannelLost`.

        Without a `pulse` only calls show that this side lives, and a call is lost if no answer comes within `ANSWER_S`.
        A channel made by `second` relies on the pulse of the first.
        """
        self._answer_s = None if pulse or self._first is not None else ANSWER_S
        with self._turn:
            until = monotonic() + within_s
            if not self._hello.generation:
                self._hello = self._hello._replace(generation=self._given(until))
                self._begins(self._hello.generation)
            self._connect(until)
        if pulse:
            self._pulse.start()

    def second(self, use: Use) -> "Channel":
        """Another channel to the same server, without a pulse of its own; it lives as long as this one does. Needs an
        open one."""
        other = Channel(self._reach, self._hello._replace(use=use), self._most_text, lost=self._lost_for_good)
        other._first = self
        return other

    def close(self) -> None:
        """Disconnect. The other side reads this as an end or as a death, as agreed before."""
        self._closing.set()
        self._cut()
        with self._turn:
            self._drop()
        if self._pulse.ident is not None:
            self._pulse.join(2 * DEAD_S)

    def call(
        self,
        name: str,
        *arguments: Any,
        body: Buffers = (),
        into: Callable[[Any], Buffers] | None = None,
        meanwhile: Callable[..., None] | None = None,
    ) -> Any:
        """Call `name` on the other side, and wait for the reply as long as the other side lives.

        `into(reply)`: memory for the reply's bytes. `meanwhile`: called with messages that the other side sends while
        it works. An exception of `name`, or of the other side, is raised here. Also raises `ChannelLost` and `Refused`.
        """
        with self._turn:
            self._number += 1
            number = self._number
            text = json.dumps([name, arguments, self.notes()]).encode()
            is_asked = False
            while True:
                try:
                    wire = self._wire or self._connect(self._until())
                    if not is_asked:
                        wire.send(Kind.CALL, number, text, body)
                    head, reply = self._next(wire, number)
                    if head.kind == Kind.REPLY:
                        wire.body(head, () if into is None else into(reply))
                except (Refused, ChannelLost) as error:
                    if not self._closing.is_set():
                        self._lost_for_good(str(error))
                    raise
                except OSError as error:
                    self._drop()
                    is_asked = False
                    if self._answer_s is not None or monotonic() > self._until():
                        self._lost_for_good(str(error))
                        raise ChannelLost(f"channel: every call fails: {error}") from error
                    continue
                self._failing_since = None
                if head.kind == Kind.REPLY:
                    return reply
                if head.kind == Kind.ERROR:
                    raise _error(reply)
                assert meanwhile is not None
                meanwhile(*reply)
                is_asked = self._say(Kind.ANSWER, number)

    def _next(self, wire: Wire, number: int) -> tuple[WireHead, Any]:
        head = wire.head(self._most_text, self._lives, self._answer_s)
        if head.number != number or head.kind not in (Kind.REPLY, Kind.ERROR, Kind.EVENT):
            raise ProtocolError("channel: received an answer to another call")
        if head.kind != Kind.REPLY and head.body:
            raise ProtocolError("channel: unexpected bytes")
        try:
            return head, json.loads(wire.text(head))
        except (ValueError, RecursionError) as error:
            raise ProtocolError("channel: no JSON") from error

    def _say(self, kind: Kind, number: int) -> bool:
        """Whether it was sent."""
        try:
            if self._wire is None:
                return False
            self._wire.send(kind, number)
        except OSError:
            self._drop()
            return False
        return True

    # --- connections -------------------------------------------------------------------------------------------------

    def _lives(self) -> bool:
        beside = self._first is None or self._first._lives()
        return beside and not self._lost and not self._closing.is_set()

    def _until(self) -> float:
        if self._failing_since is None:
            self._failing_since = monotonic()
        return self._failing_since + DEAD_S

    def _connect(self, until: float) -> Wire:
        self._raw, (self._wire, _) = self._greeted(self._hello, until, self._lives)
        return self._wire

    def _given(self, until: float) -> int:
        """Request an generation. A number that was given and never arrived does no harm."""
        raw, (wire, generation) = self._greeted(self._hello._replace(use="number"), until, self._lives)
        wire.close()
        raw.close()
        return generation

    def _greeted(self, hello: Hello, until: float, lives: Callable[[], bool]) -> tuple[socket.socket, HandshakeResult]:
        """A new connection after its handshake; retries until then, with exponential backoff."""
        backoff_s = FIRST_BACKOFF_S
        while True:
            if not lives():
                raise ChannelLost(self._lost or "channel: closed")
            try:
                connection = connected(self._reach.host, self._reach.port, until - monotonic())
                raw = connection.dup()
                try:
                    if self._reach.destination is not None:
                        connection.settimeout(CONNECT_S)
                        connection.sendall(address(self._reach.destination))
                    return raw, greet(connection, self._reach.secret, hello, self._context)
                except BaseException:
                    connection.close()
                    raw.close()
                    raise
            except OSError as error:
                if isinstance(error, Refused) and not error.later:
                    raise
                if monotonic() + backoff_s > until:
                    where = f"{self._reach.host}:{self._reach.port}"
                    raise ChannelLost(f"channel: {where} could not be reached: {error}") from error
            sleep(backoff_s)
            backoff_s = min(2 * backoff_s, MOST_BACKOFF_S)

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()
        if self._raw is not None:
            self._raw.close()
        self._wire = self._raw = None

    def _cut(self) -> None:
        """Shut the connection down, from any thread: a thread that waits on it gets an error."""
        raw = self._raw
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)

    # --- the pulse ---------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        heard, hello = monotonic(), self._hello._replace(use="pulse")
        while not self._closing.is_set():
            raw: socket.socket | None = None
            wire: Wire | None = None
            try:
                raw, (wire, _) = self._greeted(hello, heard + DEAD_S, lambda: not self._closing.is_set())
                while not self._closing.is_set():
                    wire.send(Kind.PING)
                    head = wire.head(0, lambda: not self._closing.is_set(), heard + DEAD_S - monotonic())
                    if head.kind != Kind.PONG or head.body:
                        raise ProtocolError("channel: expected an answer to a ping")
                    heard = monotonic()
                    self._closing.wait(PULSE_S)
            except OSError as error:
                is_told = isinstance(error, Refused | ChannelLost)
                if not self._closing.is_set() and (is_told or monotonic() > heard + DEAD_S):
                    self._lost = str(error) if is_told else f"channel: the server was silent for {DEAD_S:g} s"
                    self._lost_for_good(self._lost)
                    self._cut()
                    return
                self._closing.wait(FIRST_BACKOFF_S)
            finally:
                for one in (wire, raw):
                    if one is not None:
                        one.close()


def _error(reply: Any) -> Exception:
    name, text = str(reply[0]), str(reply[1])
    return ERRORS[name](text) if name in ERRORS else RuntimeError(f"{name}: {text}")
