"""A worker of the run, beside the shards, for one that computes on another machine.

It is an ordinary worker: rules, admission, rounds, trace and deaths see nothing else. What it hands in it has received
whole, and the versions that it holds it sends from where they lie, since nobody writes to them.
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
"""Replies that may be asked for again: one, and those of calls within a call."""


class CallTable(Protocol):
    """What may be asked."""

    tell: Callable[..., None]
    """Says something to who asks, while it waits; set by who serves it."""

    @property
    def has_detached(self) -> bool:
        """Whether it has said that it may go."""

    def handle(self, text: bytes) -> ReadCall:
        """A call, read. ProtocolError."""


class SentFrame(NamedTuple):
    """A frame that is said again where a connection breaks."""

    kind: Kind
    text: bytes
    body: Sequence[memoryview]


class WorkerProxy:
    """Serves one worker, through however many connections, until it has detached and gone. `WorkerGone` where it dies.

    Each call is carried out once: the number of one that was says so, and its reply is sent again. A newer connection
    takes an older one's place, of whose end nobody may have told this side. `first_s`: how long the worker may need to
    come.
    """

    def __init__(
        self, calls: CallTable, door: ConnectionAcceptor, most_text: int, first_s: float, use: Use = "calls"
    ) -> None:
        self._calls, self._door, self._most_text, self._first_s = calls, door, most_text, first_s
        self._use: Use = use
        calls.tell = self._tell
        self._wire: Wire | None = None
        self._last = 0  # the newest call that was begun
        self._running: list[int] = []  # calls that wait for calls within them, the innermost last
        self._replies: dict[int, SentFrame] = {}
        self._event = SentFrame(Kind.EVENT, b"", ())

    def serve(self) -> None:
        """To the end."""
        try:
            self._serve(None)
        finally:
            if self._wire is not None:
                self._wire.close()

    def _serve(self, until: int | None) -> None:
        """Until the worker is gone, or has answered what it was told in call `until`."""
        while True:
            try:
                if self._wire is None:
                    self._wire = self._door.wire(self._first_s, self._use)
                if self._read(self._wire, until):
                    return
            except OSError:
                if self._wire is None:  # the door has given it up
                    raise
                self._wire.close()
                self._wire = None
                if self._calls.has_detached and until is None and not self._door.has_newer(self._use):
                    return

    def _read(self, wire: Wire, until: int | None) -> bool:
        """One frame; True where it is the answer that is waited for."""
        head = wire.head(self._most_text, lambda: self._door.lives() and not self._door.has_newer(self._use))
        self._door.heard()
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
            raise ProtocolError("channel: a call out of order")
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
        """While a call is carried out: say something to the worker, and serve it until it has dealt with that."""
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
