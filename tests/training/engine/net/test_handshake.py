"""Who comes in, and who does not."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.engine.net.handshake import (
    KEY_BYTES,
    PROTOCOL,
    Hello,
    Refused,
    Secret,
    ServerTls,
    admit,
    asking,
    greet,
    serving,
)
from scalebook.training.engine.net.wire import Kind, ProtocolError, Wire

SECRET, OTHER = Secret(b"a" * KEY_BYTES), Secret(b"b" * KEY_BYTES)
HELLO = Hello("run", "digest", 3, 1)
TLS = serving()


class Meeting:
    """Both sides of a greeting; `came` and `error` of who listens."""

    def __init__(self, secret: Secret = SECRET, tls: ServerTls | None = None, refusal: Refused | None = None) -> None:
        self.ours, theirs = socket.socketpair()
        self.came: Hello | None = None
        self.error: BaseException | None = None

        def listen() -> None:
            try:
                wire, self.came = admit(theirs, secret, tls, self._check)
                wire.close()
            except OSError as error:
                self.error = error

        self._refusal = refusal
        self._thread = threading.Thread(target=listen)
        self._thread.start()

    def _check(self, hello: Hello) -> int:
        if self._refusal is not None:
            raise self._refusal
        return 2**40 + hello.generation

    def end(self) -> None:
        self.ours.close()
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def meet() -> Iterator[Any]:
    made: list[Meeting] = []

    def make(**options: Any) -> Meeting:
        made.append(Meeting(**options))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.mark.parametrize("tls", [None, TLS], ids=["plain", "tls"])
def test_who_has_the_key_comes_in(meet: Any, tls: ServerTls | None) -> None:
    meeting = meet(tls=tls)
    wire, generation = greet(meeting.ours, SECRET, HELLO, asking() if tls else None)
    wire.close()
    meeting.end()
    assert generation == 2**40 + 1
    assert (meeting.came, meeting.error) == (HELLO, None)


def test_a_worker_with_another_key_finds_out_first_and_tells_nothing(meet: Any) -> None:
    meeting = meet()
    with pytest.raises(ProtocolError, match="another key"):
        greet(meeting.ours, OTHER, HELLO, None)
    meeting.end()
    assert (meeting.came, isinstance(meeting.error, OSError)) == (None, True)


def test_a_worker_that_shows_what_it_does_not_know_is_shut_out(meet: Any) -> None:
    meeting = meet()
    wire = Wire(meeting.ours, 5)
    wire.send(Kind.NONCE, text=bytes(32))
    answer = wire.text(wire.head(64))
    wire.send(Kind.PROOF, text=answer[32:])  # the server's own, thrown back
    with pytest.raises(ConnectionResetError):
        wire.head(64)
    meeting.end()
    assert "another key" in str(meeting.error)


def test_what_was_recorded_cannot_be_played_back(meet: Any) -> None:
    first, seen = meet(), list[bytes]()
    wire = Wire(first.ours, 5)
    wire.send(Kind.NONCE, text=bytes(32))
    answer = wire.text(wire.head(64))
    seen.append(SECRET.proof(b"worker", bytes(32), answer[:32], bytes(32)))
    wire.send(Kind.PROOF, text=seen[0])
    second = meet()
    wire = Wire(second.ours, 5)
    wire.send(Kind.NONCE, text=bytes(32))
    wire.text(wire.head(64))
    wire.send(Kind.PROOF, text=seen[0])
    with pytest.raises(ConnectionResetError):
        wire.head(64)
    second.end()
    assert "another key" in str(second.error)


def test_who_is_in_between_has_another_certificate(meet: Any) -> None:
    """It decrypts and passes on: each side sees a certificate that the other does not, so no proof holds."""
    meeting, between = meet(tls=TLS), serving()
    ours, theirs = socket.socketpair()

    def pass_on() -> None:
        near = between.context.wrap_socket(theirs, server_side=True)
        far = asking().wrap_socket(meeting.ours)
        far.sendall(near.recv(64))
        near.sendall(far.recv(96))
        near.close()
        far.close()

    thread = threading.Thread(target=pass_on)
    thread.start()
    with pytest.raises(ProtocolError, match="the connection is intercepted"):
        greet(ours, SECRET, HELLO, asking())
    thread.join(20)
    ours.close()


def test_who_speaks_in_the_clear_to_a_side_that_does_not_is_shut_out(meet: Any) -> None:
    meeting = meet(tls=TLS)
    with pytest.raises(OSError):
        greet(meeting.ours, SECRET, HELLO, None)


@pytest.mark.parametrize("later", [False, True])
def test_a_refusal_is_told_with_its_reason(meet: Any, later: bool) -> None:
    meeting = meet(refusal=Refused("not today", later))
    with pytest.raises(Refused, match="not today") as refused:
        greet(meeting.ours, SECRET, HELLO, None)
    assert refused.value.later is later


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"protocol": 1}', b"[" * 900, b'{"protocol": 1, "run": 1, "digest": "", "worker": 0}']
)
def test_what_is_no_hello_is_shut_out(meet: Any, text: bytes) -> None:
    meeting = meet()
    wire = Wire(meeting.ours, 5)
    wire.send(Kind.NONCE, text=bytes(32))
    answer = wire.text(wire.head(64))
    wire.send(Kind.PROOF, text=SECRET.proof(b"worker", bytes(32), answer[:32], bytes(32)))
    wire.send(Kind.HELLO, text=text)
    with pytest.raises(ConnectionResetError):
        wire.head(64)
    meeting.end()
    assert isinstance(meeting.error, ProtocolError)


def test_another_protocol_is_told_so(meet: Any) -> None:
    meeting = meet()
    wire = Wire(meeting.ours, 5)
    wire.send(Kind.NONCE, text=bytes(32))
    answer = wire.text(wire.head(64))
    wire.send(Kind.PROOF, text=SECRET.proof(b"worker", bytes(32), answer[:32], bytes(32)))
    hello = b'{"protocol": 9, "run": "", "digest": "", "worker": 0, "generation": 1, "use": "calls"}'
    wire.send(Kind.HELLO, text=hello)
    head = wire.head(1024)
    assert head.kind == Kind.REFUSED
    assert (
        f"this node uses version {PROTOCOL} of the protocol, but the other uses version 9" in wire.text(head).decode()
    )


# --- the key ---------------------------------------------------------------------------------------------------------


def test_a_key_lies_in_a_file_that_its_owner_alone_can_read(tmp_path: Path) -> None:
    path = tmp_path / "key"
    made = Secret.made(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Secret.read(path).proof(b"x") == made.proof(b"x")
    assert Secret.made(tmp_path / "other").proof(b"x") != made.proof(b"x")
    with pytest.raises(FileExistsError):
        Secret.made(path)


def test_a_key_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "key"
    Secret.made(path)
    os.chmod(path, 0o640)
    with pytest.raises(ValueError, match=f"chmod 600 {path}"):
        Secret.read(path)


def test_a_file_with_something_else_is_no_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("secret")
    os.chmod(path, 0o600)
    with pytest.raises(ValueError, match="does not contain a Scalebook key"):
        Secret.read(path)


def test_a_key_is_not_shown() -> None:
    assert repr(SECRET) == str(SECRET) == "Secret()"
