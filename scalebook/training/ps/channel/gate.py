"""One port for all: each connection says first for whom it comes, and is handed on to that process.

What it says is a header that protects nothing: whoever takes the connection has it greeted, over TLS or without.
"""

import json
import os
import socket
import struct
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

ADDRESS: Final = struct.Struct("<4sI")
_MAGIC: Final = b"SCBw"
_MOST: Final = 1024
"""Bytes of a letter between two processes here."""
_CUT: Final = 150
"""Characters of a reason in one."""


class Listener(Protocol):
    """Where connections come from: a socket that listens, or a gate to which they are handed on."""

    def settimeout(self, timeout_s: float | None, /) -> None: ...

    def accept(self) -> tuple[socket.socket, object]: ...

    def fileno(self) -> int: ...


class Dead(Exception):  # news, not an error
    """The process whose connections come here is known to be dead, by its own machine."""

    def __init__(self, incarnation: int, why: str) -> None:
        super().__init__(why)
        self.incarnation, self.why = incarnation, why


class Gate:
    """From who listens at the port to one process; made before both are forked. A process that takes its place reads
    on where the last one was."""

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._outside.setblocking(False)

    def close(self) -> None:
        """This process's handles."""
        self._inside.close()
        self._outside.close()

    # --- by who listens at the port ----------------------------------------------------------------------------------

    def hand_over(self, connection: socket.socket) -> None:
        """It is this process's no more. Where too many wait for theirs it is closed."""
        with connection, suppress(OSError):  # whoever has connected tries again
            socket.send_fds(self._outside, [b"{}"], [connection.fileno()])

    def tell_death(self, incarnation: int, why: str) -> None:
        """Of the process that comes from there."""
        with suppress(OSError):  # then its silence tells
            self._outside.send(json.dumps([incarnation, why[:_CUT]], ensure_ascii=True).encode())

    # --- as a listener -----------------------------------------------------------------------------------------------

    def settimeout(self, timeout_s: float | None, /) -> None:
        self._inside.settimeout(timeout_s)

    def accept(self) -> tuple[socket.socket, object]:
        """`Dead` instead, where that is told."""
        text, descriptors, _, _ = socket.recv_fds(self._inside, _MOST, 1)
        if not text:
            raise OSError("channel: nobody is at the port any more")
        if not descriptors:
            incarnation, why = json.loads(text)
            raise Dead(incarnation, why)
        try:
            return socket.socket(fileno=descriptors[0]), None
        except OSError:
            os.close(descriptors[0])
            raise

    def fileno(self) -> int:
        return self._inside.fileno()


class Addressed(NamedTuple):
    """A connection that has said which gate it is for, or has not yet."""

    connection: socket.socket
    until: float


def address(number: int) -> bytes:
    """What a connection for this gate says first."""
    return ADDRESS.pack(_MAGIC, number)


def gate_of(header: bytes, gates: int) -> int | None:
    """Which gate it names; None for none."""
    magic, number = ADDRESS.unpack(header)
    return number if magic == _MAGIC and number < gates else None
