"""A worker of the run, beside the shards, that stands for one on another node.

It is an ordinary worker to rules, admission, rounds, trace and death handling. It pushes gradients that it has received
whole, and sends the versions that it holds straight from shared memory, since nobody writes to them.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from scalebook.training.engine.net.acceptor import ConnectionAcceptor
from scalebook.training.engine.net.call_protocol import ReadCall, Reply
from scalebook.training.engine.net.channel import ERRORS
from scalebook.training.engine.net.handshake import Use
from scalebook.training.engine.net.wire import Kind, ProtocolError, Wire

KEPT: Final = 4
"""Replies that may be requested again: one, and those of calls within a call."""


class CallTable(Protocol):
    """The calls that one connection may make."""

    tell: Callable[..., None]
    """Sends the caller a message while it waits; set by the proxy."""

    @property
    def has_detached(self) -> bool:
        """Whether the caller has said that it leaves."""

    def handle(self, text: bytes) -> ReadCall:
        """Parse a call. Raises ProtocolError."""


class SentFrame(NamedTuple):
    """A frame that is sent again when a connection breaks."""

    kind: Kind
    text: bytes
    body: Sequence[memoryview]


class WorkerProxy:
    """Serves one worker, over any number of connections, until it has detached and left. Raises `WorkerGone` if it
    dies.

    Each call is carried out once: a repeated number gets the stored reply. A newer connection replaces an older one,
    which may still look open here. `first_s`: how long the worker may take to connect.
    """

    def __init__(
        self, calls: CallTable, acceptor: ConnectionAcceptor, most_text: int, first_s: float, use: Use = "calls"
    ) -> None:
        self._calls, self._acceptor, self._most_text, self._first_s = calls, acceptor, most_text, first_s
        self._use: Use = use
        calls.tell = self._tell
        self._wire: Wire | None = None
        self._last = 0  # the newest call that was begun
        self._running: list[int] = []  # calls that wait for calls within them, the innermost last
        self._replies: dict[int, SentFrame] = {}
        self._event = SentFrame(Kind.EVENT, b"", ())

    def serve(self) -> None:
        """Serve the worker to its end."""
        try:
            self._serve(None)
        finally:
            if self._wire is not None:
                self._wire.close()

    def _serve(self, until: int | None) -> None:
        """Serve until the worker has left, or has answered the message sent in call `until`."""
        while True:
            try:
                if self._wire is None:
                    self._wire = self._acceptor.wire(self._first_s, self._use)
                if self._read(self._wire, until):
                    return
            except OSError:
                if self._wire is None:  # the acceptor has given it up
                    raise
                self._wire.close()
                self._wire = None
                if self._calls.has_detached and until is None and not self._acceptor.has_newer(self._use):
                    return

    def _read(self, wire: Wire, until: int | None) -> bool:
        """Handle one frame; True if it is the answer that is waited for."""
        head = wire.head(self._most_text, lambda: self._acceptor.lives() and not self._acceptor.has_newer(self._use))
        self._acceptor.heard()
        text = wire.text(head)
        if head.kind == Kind.ANSWER and until is not None and head.number == until and not head.body:
            return True
        if head.kind != Kind.CALL:
            raise ProtocolError("channel: no call")
        call = self._calls.handle(text)
        wire.body(head, call.room)
        if head.number in self._replies:
            self._say(wire, head.number, self._replies[head.number])
        elif self._running and head.number == self._running[-1]:
            self._say(wire, head.number, self._event)
        elif head.number == self._last + 1:
            self._last += 1
            reply = self._carried_out(call, head.number)
            self._replies[head.number] = reply
            self._replies.pop(head.number - KEPT, None)
            if self._wire is not None:
                self._say(self._wire, head.number, reply)
        else:
            raise ProtocolError("channel: received a call out of order")
        return False

    def _carried_out(self, call: ReadCall, number: int) -> SentFrame:
        self._running.append(number)
        try:
            done = call.carry_out()
            reply = done if isinstance(done, Reply) else Reply(done)
            return SentFrame(Kind.REPLY, json.dumps(reply.plain).encode(), reply.body)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, it ends that worker, not this one
            kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__name__ in ERRORS]
            name = kinds[0] if kinds else type(error).__name__
            text = str(error) if name != "OSError" else str(error.args[-1] if error.args else error)
            return SentFrame(Kind.ERROR, json.dumps([name, text[: self._most_text // 8]]).encode(), ())
        finally:
            self._running.pop()

    def _tell(self, *plain: Any) -> None:
        """Send the worker a message during a call, and serve it until it has answered."""
        number = self._running[-1]
        self._event = SentFrame(Kind.EVENT, json.dumps(plain).encode(), ())
        if self._wire is not None:
            try:
                self._say(self._wire, number, self._event)
            except OSError:
                self._wire.close()
                self._wire = None
        self._serve(number)

    @staticmethod
    def _say(wire: Wire, number: int, said: SentFrame) -> None:
        wire.send(said.kind, number, said.text, said.body)
