"""Short messages between the monitors of a run's nodes, in both directions.

A process of the first node keeps the port. Every `PULSE_S` or so, each other node's monitor fetches the first monitor's
new messages and posts its own. A monitor that has not asked for `DEAD_S` is reported as silent to the first. The first
monitor may itself be held up for longer, by a disk or a death; the others are told only if it is stopped.
"""

import json
import math
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

from scalebook.training.engine.net.acceptor import ConnectionAcceptor, GenerationCounter
from scalebook.training.engine.net.call_protocol import CallSpec, ReadCall, count, read
from scalebook.training.engine.net.channel import Channel, ChannelLost, ProxyAddress
from scalebook.training.engine.net.connection_handoff import ConnectionHandoff, Listener, PortDispatcher, turn_away
from scalebook.training.engine.net.handshake import Hello, Refused, Secret, ServerTls
from scalebook.training.engine.net.wire import DEAD_S, ProtocolError
from scalebook.training.engine.net.worker_proxy import WorkerProxy

MOST_TEXT: Final = 16_384
"""Most bytes of a frame to or from a mailbox."""
LONGEST: Final = 4096
"""Most characters of one message."""
LEAVE_S: Final = 8.0
"""How long the port stays open at the end, so that other nodes can read the last message."""
_FIRST_S: Final = 10 * 365 * 86_400.0  # whether a machine comes at all is watched elsewhere
_LOOK_S: Final = 0.01
_OVER: Final = b"."


class MonitorMessage(NamedTuple):
    """A message from the monitor of node `machine`."""

    machine: int
    text: str


class StartSignal:
    """What the processes of a node wait for before they connect to another node: a number in shared memory."""

    def __init__(self) -> None:
        self._number = memoryview(mmap(-1, 8)).cast("q")

    def set(self, number: int = 1) -> None:
        """Let them go on with this number, above 0. Called by the monitor when the nodes have met."""
        self._number[0] = number

    def wait(self, deadline_s: float) -> int:
        """Wait for the number; `ChannelLost` after `deadline_s`."""
        until = monotonic() + deadline_s
        while not self._number[0]:
            if monotonic() > until:
                raise ChannelLost(
                    f"channel: the first node's monitor has not contacted this node within {deadline_s:g} s"
                )
            sleep(_LOOK_S)
        return self._number[0]


class MessageBoard:
    """The first monitor's messages to all nodes, in order. Used by several threads."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._asked: dict[int, tuple[int, float]] = {}  # texts that a machine knows, and when it last asked
        self._lock = threading.Lock()

    def put(self, text: str) -> None:
        with self._lock:
            self._texts.append(text)

    def since(self, machine: int, read_count: int) -> list[str]:
        """The messages after the first `read_count`; at most eight."""
        with self._lock:
            self._asked[machine] = read_count, monotonic()
            return self._texts[read_count : read_count + 8]

    def remove_node(self, machine: int) -> None:
        with self._lock:
            self._asked.pop(machine, None)

    def take_silent(self) -> list[int]:
        """Nodes that have not asked for `DEAD_S`. Each is returned once, and then not waited for until it asks
        again."""
        with self._lock:
            silent = [
                machine for machine, (_, last_request) in self._asked.items() if monotonic() - last_request > DEAD_S
            ]
            for machine in silent:
                del self._asked[machine]
            return silent

    def is_read(self) -> bool:
        """Whether every node that is there has read all messages."""
        with self._lock:
            return all(read_count >= len(self._texts) for read_count, _ in self._asked.values())


class MailboxCalls:
    """The calls of node `machine`'s monitor. `said` gets its messages, `died` the deaths of its workers."""

    def __init__(
        self, machine: int, board: MessageBoard, said: Callable[[int, str], None], died: Callable[[int, int, str], None]
    ) -> None:
        self.tell: Callable[..., None] = lambda *_: None
        self._machine, self._board, self._said, self._died = machine, board, said, died
        self.has_detached = False
        self._offers = {
            "post": CallSpec((str,), self._say),
            "news": CallSpec((int,), self._news),
            "died": CallSpec((int, int, str), self._tell_death),
            "close": CallSpec((), self._leave),
        }

    def handle(self, text: bytes) -> ReadCall:
        """Parse a call."""
        return read(text, self._offers)

    def _say(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ProtocolError("channel: a message is too long")
        self._said(self._machine, text)

    def _news(self, read_count: int) -> Any:
        return self._board.since(self._machine, count(read_count))

    def _tell_death(self, worker: int, generation: int, why: str) -> None:
        self._died(worker, generation, why)

    def _leave(self) -> None:
        self._board.remove_node(self._machine)
        self.has_detached = True


def _serve(
    listener: Listener, secret: Secret, tls: ServerTls | None, expected: Hello, calls: Callable[[], MailboxCalls]
) -> None:
    """Serve one process of another node's monitor after the other, without end, in a thread."""
    lives = GenerationCounter()
    while True:
        acceptor = ConnectionAcceptor(listener, secret, tls, expected, lives)
        acceptor.open()
        try:
            with suppress(OSError):
                WorkerProxy(calls(), acceptor, MOST_TEXT, _FIRST_S).serve()
        finally:
            acceptor.close()


class MonitorMailbox:
    """The first node's mailbox, made by its monitor before the fork. `name`: of the run. `machines`: how many other
    nodes there are. `workers`: of all nodes, if the remote ones have handoffs of their own, which follow those of the
    monitors."""

    def __init__(
        self,
        name: str,
        secret: Secret,
        tls: ServerTls | None,
        listener: socket.socket,
        machines: int,
        workers: int = 0,
    ) -> None:
        self.met = StartSignal()
        self._name, self._secret, self._tls, self._listener = name, secret, tls, listener
        self._machines = machines
        self._handoffs = [ConnectionHandoff() for _ in range(machines + workers)]
        self._board, self._wall = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # texts whole, in order
        self._wall.setblocking(False)

    # --- in the monitor ----------------------------------------------------------------------------------------------

    def news(self) -> list[MonitorMessage]:
        """Messages of other nodes since the last call."""
        messages: list[MonitorMessage] = []
        with suppress(BlockingIOError):
            while text := self._wall.recv(MOST_TEXT):
                messages.append(MonitorMessage(*json.loads(text)))
        return messages

    def post(self, text: str) -> None:
        """Post a message to all other nodes; they read it within a second or two."""
        self._put(text.encode())

    def release_port(self) -> None:
        """Say that no message follows, so that the process that keeps the port may end."""
        self._put(_OVER)

    def close(self) -> None:
        """Close this process's descriptors."""
        self._listener.close()
        for handoff in self._handoffs:
            handoff.close()
        self._board.close()
        self._wall.close()

    def _put(self, text: bytes) -> None:
        with suppress(OSError):  # the process that keeps the port is gone
            self._wall.send(text)

    # --- in a process of its own -------------------------------------------------------------------------------------

    def serve_until_over(self) -> None:
        """Listen until the monitor has posted its last message and others have read it, or `LEAVE_S` longer."""
        board, over = MessageBoard(), threading.Event()

        def copy() -> None:
            while text := self._board.recv(MOST_TEXT):
                board.put(text.decode()) if text != _OVER else over.set()

        for machine in range(1, 1 + self._machines):
            self._open(machine, board)
        threading.Thread(target=copy, name="board", daemon=True).start()
        until, ran = math.inf, monotonic()  # the monitor ran then

        def is_over() -> bool:
            nonlocal until, ran
            silent = json.dumps(["silent", DEAD_S])
            for machine in board.take_silent():
                self._heard(machine, silent)
            if not _is_stopped(os.getppid()):
                ran = monotonic()
            elif monotonic() - ran > DEAD_S:
                ran = math.inf  # it is told once
                board.put(silent)
            if over.is_set():
                until = min(until, monotonic() + LEAVE_S)
            return over.is_set() and (board.is_read() or monotonic() > until)

        PortDispatcher(
            self._listener, self._handoffs, self._secret, self._tls, self._given_up, self._turn_away
        ).dispatch_until(is_over)

    def _open(self, machine: int, board: MessageBoard) -> None:
        handoff, hello = self._handoffs[machine - 1], Hello(self._name, "", machine - 1, 0)

        def serve() -> None:
            _serve(
                handoff,
                self._secret,
                self._tls,
                hello,
                lambda: MailboxCalls(machine, board, self._heard, self._tell_death),
            )

        threading.Thread(target=serve, name=f"mailbox {machine}", daemon=True).start()

    def _heard(self, machine: int, text: str) -> None:
        self._board.send(json.dumps([machine, text]).encode())

    def _tell_death(self, worker: int, generation: int, why: str) -> None:
        """Report the death of a remote worker to its proxy."""

    def _given_up(self, number: int) -> bool:
        """Whether no process uses this handoff any more."""
        return False

    def _turn_away(self, hello: Hello) -> int:
        """Refuse a connection for such a handoff, after its handshake. Raises `Refused`."""
        turn_away(hello)


def _is_stopped(pid: int) -> bool:
    """Whether a process is stopped, by SIGSTOP or a debugger; proc(5)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has gone, and this process goes with it
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


class RemoteMailbox:
    """The mailbox of any other node, made by its monitor before the fork. `destination` of `reach`: the handoff of this
    node."""

    def __init__(self, name: str, reach: ProxyAddress) -> None:
        self.met = StartSignal()
        self._name, self._reach = name, reach
        self._channel: Channel | None = None
        self._known = 0
        self._failing: float | None = None
        self.unfound = ""
        """Why the last attempt to reach the first node failed."""

    def find(self, within_s: float) -> bool:
        """Connect to the first node if not connected; False if it cannot be reached. Raises `Refused`."""
        if self._channel is None:
            began = monotonic()
            channel = Channel(self._reach, Hello(self._name, "", self._reach.destination or 0, 0), MOST_TEXT)
            try:
                channel.open(within_s, pulse=False)
            except (ChannelLost, Refused) as error:
                self.unfound = str(error)
                self._failing = self._failing or began
                if isinstance(error, Refused):
                    raise
                return False
            self._channel, self._known = channel, 0
        return True

    def post(self, text: str) -> None:
        """Post a message to the first monitor. Raises `ChannelLost`."""
        self._call("post", text)

    def news(self) -> list[str]:
        """The first monitor's messages since the last call. This also shows that this monitor lives. Raises
        `ChannelLost`."""
        texts = [str(text) for text in self._call("news", self._known)]
        self._known += len(texts)
        return texts

    def is_unreachable(self) -> bool:
        """Whether no call has succeeded for `DEAD_S`."""
        return self._failing is not None and monotonic() - self._failing > DEAD_S

    def close(self) -> None:
        """Sign off and disconnect."""
        if self._channel is not None:
            with suppress(OSError):
                self._call("close")
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _call(self, name: str, *arguments: Any) -> Any:
        if self._channel is None:
            raise ChannelLost("channel: not connected")
        began = monotonic()
        try:
            reply = self._channel.call(name, *arguments)
        except OSError as error:
            self._channel.close()
            self._channel = None
            self.unfound = str(error)
            self._failing = self._failing or began
            raise ChannelLost(str(error)) from error
        self._failing = None
        return reply
