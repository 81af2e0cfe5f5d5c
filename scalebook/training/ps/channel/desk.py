"""What machines of a run tell each other, beside what their workers do: short texts, both ways.

Each machine but the server's has a desk there, which carries its texts to the server's monitor and has the monitor's
for it to ask for.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from scalebook.training.ps.channel.asked import Offer, ReadCall, count, read
from scalebook.training.ps.channel.door import Door, Lives
from scalebook.training.ps.channel.gate import Gate, Listener
from scalebook.training.ps.channel.greeting import Hello, Secret, Serving
from scalebook.training.ps.channel.stand_in import StandIn
from scalebook.training.ps.channel.wire import ProtocolError

MOST_TEXT: Final = 16_384
"""Bytes of a frame to or from a desk."""
LONGEST: Final = 4096
"""Characters of one text."""
SILENT_S: Final = 30.0
"""A monitor asks about once a second, and may be held up; whether its workers live they show themselves."""
FIRST_S: Final = 10 * 365 * 86_400.0
"""Whether a machine comes at all is watched elsewhere."""


class Board:
    """The server's monitor's texts, for all machines, in order; by several threads."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._heard: dict[int, int] = {}
        self._lock = threading.Lock()

    def put(self, text: str) -> None:
        with self._lock:
            self._texts.append(text)

    def since(self, machine: int, known: int) -> list[str]:
        """What is new to a machine that knows so many; at most eight."""
        with self._lock:
            self._heard[machine] = known
            return self._texts[known : known + 8]

    def leave(self, machine: int) -> None:
        with self._lock:
            self._heard.pop(machine, None)

    def is_read(self) -> bool:
        """Whether every machine that is there knows all."""
        with self._lock:
            return all(known >= len(self._texts) for known in self._heard.values())


class DeskCalls:
    """What the monitor of machine `machine` may ask. `said` is told its texts, and says to which worker's stand-in
    a death is to be told."""

    def __init__(
        self, machine: int, board: Board, said: Callable[[str], None], died: Callable[[int, int, str], None]
    ) -> None:
        self.tell: Callable[..., None] = lambda *_: None
        self._machine, self._board, self._said, self._died = machine, board, said, died
        self.has_detached = False
        self._offers = {
            "say": Offer((str,), self._say),
            "news": Offer((int,), self._news),
            "died": Offer((int, int, str), self._tell_death),
            "leave": Offer((), self._leave),
        }

    def asked(self, text: bytes) -> ReadCall:
        """A call, read."""
        return read(text, self._offers)

    def _say(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ProtocolError("channel: too long a text")
        self._said(text)

    def _news(self, known: int) -> Any:
        return self._board.since(self._machine, count(known))

    def _tell_death(self, worker: int, incarnation: int, why: str) -> None:
        self._died(worker, incarnation, why)

    def _leave(self) -> None:
        self._board.leave(self._machine)
        self.has_detached = True


def keep_desk(
    gate: Listener, secret: Secret, tls: Serving | None, expected: Hello, calls: Callable[[], DeskCalls]
) -> None:
    """Without end, in a thread: one life of the other machine's monitor after the other."""
    lives = Lives()
    while True:
        door = Door(gate, secret, tls, expected, lives, dead_s=SILENT_S)
        door.open()
        try:
            with suppress(OSError):
                StandIn(calls(), door, MOST_TEXT, FIRST_S).serve()
        finally:
            door.close()


def desks(
    gates: dict[int, Gate],
    secret: Secret,
    tls: Serving | None,
    hello: Hello,
    calls: Callable[[int], DeskCalls],
) -> None:
    """Open those of the machines whose gates have these numbers."""
    for number, gate in gates.items():

        def keep(number: int = number, gate: Gate = gate) -> None:
            keep_desk(gate, secret, tls, hello._replace(worker=number), lambda: calls(number))

        threading.Thread(target=keep, name=f"desk {number}", daemon=True).start()


def pair() -> tuple[socket.socket, socket.socket]:
    """Between who listens at the port and the monitor: texts whole, in order."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
