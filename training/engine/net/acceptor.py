"""The listening side of a connection: authenticates workers, detects dead ones, and lets a restarted worker take
over."""

import os
import secrets
import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from mmap import mmap
from time import monotonic
from typing import Final

from scalebook.training.engine.memory.region import anonymous_file
from scalebook.training.engine.net.connection_handoff import Listener, ProcessDead
from scalebook.training.engine.net.handshake import GIVEN_UP, Hello, Refused, Secret, ServerTls, Use, admit
from scalebook.training.engine.net.wire import DEAD_S, SLICE_S, Kind, ProtocolError, Wire, set_up

GUESTS: Final = 8
"""Connections in their handshake at a time; more are closed at once."""
_FIRST_BITS: Final = 40
"""The first number is drawn with this many random bits, so that a worker of another launch has none of these
numbers."""


class GenerationCounter:
    """Numbers the generations of one worker. The server gives the numbers, so no node's clock decides which is newer.

    Made before the fork and shared by all processes and threads; only one at a time calls `activate`. The last number
    is the read offset of an empty file, so that one system call increments it.
    """

    def __init__(self) -> None:
        self._file = anonymous_file("lives")
        weakref.finalize(self, os.close, self._file)
        self._first = os.lseek(self._file, secrets.randbits(_FIRST_BITS), os.SEEK_SET)
        self._newest = memoryview(mmap(-1, 8)).cast("q")
        self._newest[0] = self._first

    @property
    def newest(self) -> int:
        """The generation that became active last."""
        return self._newest[0]

    @property
    def have_begun(self) -> bool:
        """Whether any generation has been active."""
        return self.newest > self._first

    def next_generation(self) -> int:
        """A new number, larger than all before."""
        return os.lseek(self._file, 1, os.SEEK_CUR)

    def may_begin(self, generation: int) -> bool:
        """Whether this number was given, and neither it nor a newer one has been active."""
        return self.newest < generation <= os.lseek(self._file, 0, os.SEEK_CUR)

    def activate(self, generation: int) -> None:
        """Make this generation the newest."""
        self._newest[0] = generation


class WorkerGone(ConnectionError):
    """The worker on the other node counts as dead; the message says why."""


class ConnectionAcceptor:
    """Accepts the connections of one remote worker, for one life of its proxy, in threads of its own; answers the
    pulse.

    `lives`: the worker's generations; only a newer one is accepted. `lost` is called once, from a thread, when the
    worker counts as dead.
    """

    def __init__(
        self,
        listener: Listener,
        secret: Secret,
        tls: ServerTls | None,
        expected: Hello,
        lives: GenerationCounter,
        lost: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._listener, self._secret, self._tls, self._expected = listener, secret, tls, expected
        self._lives, self._lost = lives, lost
        self._state = threading.Condition()
        self._mine: int | None = None  # the generation that this life is of
        self._heard = monotonic()
        self._newest: dict[Use, Wire] = {}
        self._gone = ""
        self._is_closed = False
        self._guests = threading.BoundedSemaphore(GUESTS)
        self._thread = threading.Thread(target=self._keep, name="acceptor", daemon=True)

    def open(self) -> None:
        """Start accepting."""
        self._listener.settimeout(SLICE_S)
        self._thread.start()

    def close(self) -> None:
        """Stop accepting. The listener stays open for the next life."""
        with self._state:
            self._is_closed = True
            for wire in self._newest.values():
                wire.close()
            self._newest.clear()
            self._state.notify_all()
        self._thread.join(4 * SLICE_S)

    def lives(self) -> bool:
        """Whether the worker counts as alive."""
        return not self._gone and not self._is_closed

    def has_newer(self, use: Use = "calls") -> bool:
        """Whether the worker has opened a new connection for this use, which replaces the present one."""
        return use in self._newest

    def heard(self) -> None:
        """Note a sign of life."""
        self._heard = monotonic()

    def wire(self, within_s: float, use: Use = "calls") -> Wire:
        """Wait for the next connection for this use: `within_s` for the worker's first, and as long as it lives for a
        later one. Raises `WorkerGone`."""
        until = monotonic() + within_s
        with self._state:
            while use not in self._newest:
                if self._gone or self._is_closed:
                    raise WorkerGone(self._gone or "closed")
                if self._mine is None and monotonic() > until:
                    raise WorkerGone(f"worker {self._expected.worker} did not connect within {within_s:g} s")
                self._state.wait(SLICE_S)
            return self._newest.pop(use)

    # --- threads -----------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while self.lives():
            if self._mine is not None and monotonic() - self._heard > DEAD_S:
                self._lose(f"worker {self._expected.worker} was silent for {DEAD_S:g} s")
                return
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except ProcessDead as dead:  # of this life, or of one before
                if dead.generation == self._mine:
                    self._lose(dead.why)
                continue
            except OSError:  # the listener was closed, or a guest left before it was taken
                if self._listener.fileno() < 0:
                    return
                continue
            if not self._guests.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._greet, args=(connection,), name="guest", daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        try:
            try:
                set_up(connection)
                wire, hello = admit(connection, self._secret, self._tls, self._check)
            except OSError:  # none of ours, refused, or gone: it need not be told more
                return
        finally:
            self._guests.release()
        if hello.use == "number":
            wire.close()
            return
        self.heard()
        if hello.use == "pulse":
            with suppress(OSError):
                self._answer(wire)
            wire.close()
            return
        with self._state:
            if hello.use in self._newest:
                self._newest.pop(hello.use).close()
            if self.lives():
                self._newest[hello.use] = wire
            else:
                wire.close()
            self._state.notify_all()

    def _answer(self, wire: Wire) -> None:
        while self.lives():
            head = wire.head(0, self.lives, 2 * DEAD_S)
            if head.kind != Kind.PING or head.body:
                raise ProtocolError("channel: expected a ping from the other side")
            self.heard()
            wire.send(Kind.PONG)

    def _check(self, hello: Hello) -> int:
        expected = self._expected
        if (hello.run, hello.worker) != (expected.run, expected.worker):
            why = f"channel: this node expects worker {expected.worker} of run {expected.run!r}."
            raise Refused(why, later=hello.worker == expected.worker)  # of a run that is about to end
        if hello.digest != expected.digest:
            raise Refused("channel: the settings differ from this node's. Start all nodes with the same config.")
        if hello.use == "number":
            return self._lives.next_generation()
        with self._state:
            if hello.generation == self._mine:
                return hello.generation
            if not self._lives.may_begin(hello.generation):
                raise Refused(GIVEN_UP)
            if self._mine is None:
                if hello.use != "calls":
                    raise Refused(
                        f"channel: a connection for {hello.use} must come after the worker's first connection.",
                        later=True,
                    )
                self._lives.activate(hello.generation)
                self._mine = hello.generation
                return hello.generation
        self._lose(f"worker {expected.worker} has connected as a new process")
        raise Refused("channel: the previous process of this worker has not ended yet.", later=True)

    def _lose(self, why: str) -> None:
        with self._state:
            if self._gone or self._is_closed:
                return
            self._gone = why
            self._state.notify_all()
        self._lost(why)
