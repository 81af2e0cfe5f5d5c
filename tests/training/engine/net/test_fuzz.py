"""Whatever comes, with the key or without: nobody crashes, nobody hangs, and no room is made beyond the plan's.

A commit throws a few hundred frames, `make thorough` ten thousand.
"""

import json
import random
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable

import pytest
import torch
from torch.nn import Parameter

from scalebook.training.engine.launch import Launch
from scalebook.training.engine.net.channel import Channel
from scalebook.training.engine.net.handshake import KEY_BYTES, Hello, Secret, Use, greet
from scalebook.training.engine.net.version_mirror import settings_digest
from scalebook.training.engine.net.wire import HEAD, MAGIC, Kind, connected
from scalebook.training.engine.rules.settings import Settings
from tests.training.engine.net.far import DEADLINE_S, LOOPBACK, RUN, SECRET, SHAPES, Far, far
from tests.training.engine.worker.peers import counting, serving

ROOM = 8 << 20
"""Bytes that this process may have at most: texts, threads, and a plan of 28 bytes a version."""
PIECE = 30
"""Frames between two pushes of the other worker, for which its servers do not wait without end."""
CALLS = [
    "join", "begin", "rest", "finish", "detach", "pull", "fetch_full", "publish_initial", "await_turn", "push",
    "rendezvous", "living", "sign_of_life", "is_over", "cursor.enter_epoch", "cursor.take_batch", "cursor.mark_done",
    "cursor.outstanding", "cursor.progress", "cursor.mark_dead", "cursor.rejoin", "cursor.state", "signals.stop",
    "signals.plateau_steps", "meetings.set_phase",
    "meetings.gather_before_training", "meetings.all_gather", "rows.map", "rows.write", "rows.read",
    "signals.add_plateau_step", "counts", "worker_times", "staleness", "pushes",
    "timings", "rows", "nothing.of.the.kind", "__class__",
]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 255, 2**31, 2**63 - 1, 2**64, 10**40, -(2**63)]


class Thrower:
    """Throws frames at the proxy of worker 1, over connections of its own. What it does follows from its seed."""

    def __init__(self, far: Far, seed: int, has_push_stream: bool) -> None:
        self._far, self._drawn = far, random.Random(seed)
        self._number: dict[Use, int] = {"calls": 0, "pushes": 0, "pulse": 0}  # of the last call with a reply
        self._patience_s: dict[Use, float] = {"calls": 2.0, "pushes": 2.0 if has_push_stream else 0.01, "pulse": 2.0}
        self._port, self._mine = far.reach(1).port, 0
        wire, self._mine = greet(self._open(), SECRET, self._hello()._replace(use="number"), None)
        wire.close()
        self._recorded: list[bytes] = []
        self.thrown = 0

    def throw(self, frames: int) -> None:
        kinds: list[Callable[[], None]] = [
            self._noise, self._no_key, self._played_back, self._truncated, self._refused, self._calls, self._calls,
            self._beside,
        ]  # fmt: skip
        while self.thrown < frames:
            assert self._far.acceptors[1].lives(), self._far.endings
            try:
                self._drawn.choice(kinds)()
            except OSError:
                self.thrown += 1  # shut out, as it should be

    def _open(self) -> socket.socket:
        connection = connected(LOOPBACK, self._port)
        connection.settimeout(DEADLINE_S)
        return connection

    def _send(self, connection: socket.socket, content: bytes) -> None:
        self.thrown += 1
        connection.sendall(content)

    def _head(self, kind: int, text: int, body: int, number: int = 0) -> bytes:
        return HEAD.pack(MAGIC, kind, text, 0, number, body)

    def _noise(self) -> None:
        with self._open() as connection:
            self._send(connection, self._drawn.randbytes(self._drawn.randrange(1, 400)))

    def _truncated(self) -> None:
        whole = self._head(Kind.NONCE, 32, 0) + self._drawn.randbytes(32)
        with self._open() as connection:
            self._send(connection, whole[: self._drawn.randrange(len(whole))])

    def _no_key(self) -> None:
        """Another key, or none, or lengths of the moon."""
        with self._open() as connection:
            kind = self._drawn.choice(list(Kind))
            if self._drawn.random() < 0.5:
                huge = self._drawn.choice([2**16, 2**31, 2**32 - 1])
                self._send(connection, self._head(kind, huge, self._drawn.choice([0, 2**40, 2**64 - 1])))
            else:
                self.thrown += 1
                greet(connection, Secret(self._drawn.randbytes(KEY_BYTES)), self._hello(), None)

    def _played_back(self) -> None:
        """What a right worker has said, once more."""
        with self._open() as connection:
            mine = bytes(32)
            self._send(connection, self._head(Kind.NONCE, 32, 0) + mine)
            answer = connection.recv(4096)
            if not self._recorded:
                self._recorded.append(SECRET.proof(b"worker", mine, self._drawn.randbytes(32), bytes(32)))
            proof = self._drawn.choice([self._recorded[0], answer[-32:].ljust(32)])
            self._send(connection, self._head(Kind.PROOF, 32, 0) + proof)
            connection.recv(1)

    def _refused(self) -> None:
        """With the key, but of an old life, or one that nobody was given, or elsewhere; or to be given another."""
        self.thrown += 1
        hello = self._drawn.choice(
            [
                *[self._hello()._replace(generation=self._mine + off) for off in (-(10**6), -1, 1, 10**6, 2**62)],
                self._hello()._replace(worker=0),
                self._hello()._replace(run=""),
                self._hello()._replace(use="number", digest=""),
            ]
        )
        greet(self._open(), SECRET, hello, None).wire.close()

    def _calls(self) -> None:
        """With the key: calls of any kind, in any order, with anything."""
        self._ask("calls")

    def _beside(self) -> None:
        """The same over the connection for pushes, and to whom signs of life are sent, which are not for calls."""
        self._ask(self._drawn.choice(["pushes", "pushes", "pulse"]))

    def _ask(self, use: Use) -> None:
        wire, _ = greet(self._open(), SECRET, self._hello()._replace(use=use), None)
        try:
            for _ in range(self._drawn.randrange(1, 12)):
                self.thrown += 1
                kind = self._drawn.choice(list(Kind)) if self._drawn.random() < 0.1 else Kind.CALL
                follows = self._number[use] + 1
                number = self._drawn.choice([follows, follows, follows, follows + 1, follows - 1, 0, 2**40])
                body = memoryview(bytes(self._drawn.choice([0, 0, 0, 4, 12, 28, 4096])))
                wire.send(kind, number, self._text(), [body])
                head = wire.head(1 << 20, within_s=self._patience_s[use])
                self._number[use] = max(self._number[use], head.number)  # it was carried out
                wire.text(head)
                wire.body(head, [memoryview(bytearray(head.body))])
        finally:
            wire.close()

    def _text(self) -> bytes:
        if self._drawn.random() < 0.1:
            return self._drawn.choice([b"", b"[" * 60_000, b"null", b"{}", self._drawn.randbytes(50), b'["push"]'])
        arguments = [self._argument() for _ in range(self._drawn.randrange(8))]
        notes = self._drawn.choice(
            [None, [0, 0, 0, 0, 0, 0], "x", [1], [0.0, 0.5, 1e308, 10**30], [0, 0, 0, 0, 0, float("inf")]]
        )
        return json.dumps([self._drawn.choice(CALLS), arguments, notes]).encode()

    def _argument(self) -> object:
        return self._drawn.choice(
            [self._drawn.choice(NUMBERS), True, 0.5, "text", [], [0], [1, 1], [[]], None, {"a": 1}, "[]", [0, 2**70]]
        )

    def _hello(self) -> Hello:
        """As the worker itself."""
        return Hello(RUN, settings_digest(self._far.launch.figures.settings), 1, self._mine)


@pytest.mark.sampled
@pytest.mark.parametrize("settings", [Settings(), Settings(host="overlap")], ids=["one", "overlap"])
@pytest.mark.parametrize("frames", [100, pytest.param(10_000, marks=[pytest.mark.thorough, pytest.mark.timeout(900)])])
def test_whatever_comes_the_others_train_on_and_the_worker_itself_can_too(frames: int, settings: Settings) -> None:
    """With `overlap` its proxy serves the connection for pushes too."""
    launch = Launch(2, settings)
    with serving(launch, counting), far(launch, counting) as both:
        withstood(both, frames, late=2 * settings.overlap)
    launch.close()


def withstood(far: Far, frames: int, late: int) -> None:
    """`late`: the version that is held when a push returns may be so much behind."""
    peer, parameters = far.worker(0, DEADLINE_S), [Parameter(torch.zeros(shape)) for shape in SHAPES]
    far.stand_in(1, 0.05)
    far.launch.mark_dead(1)  # so that worker 0 waits for none of what it does
    joined = peer.join([counting(parameters)])
    joined.start()
    joined.begin()
    thrower = Thrower(far, frames, late > 0)
    threads = threading.active_count()
    tracemalloc.start()
    for count in range(1, frames // PIECE + 1):
        thrower.throw(count * PIECE)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        assert joined.clients[0].push().version >= count - late
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < ROOM
    channel = Channel(far.reach(1), thrower._hello(), 1 << 20)
    if far.acceptors[1].lives():  # unless it was told to go
        channel.open(DEADLINE_S)
        channel._number = 10**6
        with pytest.raises(ConnectionError):
            channel.call("living")  # a number that nobody has asked for
        channel.close()
    until = time.monotonic() + DEADLINE_S
    while threading.active_count() > threads + bool(late) and time.monotonic() < until:  # and the thread of its pushes
        time.sleep(0.1)
    assert threading.active_count() <= threads + bool(late)
    assert {str(error) for error in far.endings} <= {"closed"}
    joined.finish()
    assert far.launch.figures.counts().updates >= frames // PIECE
    joined.detach()


@pytest.mark.thorough
def test_guests_that_say_nothing_do_not_keep_others_out() -> None:
    """More of them than are let in at a time are shut out at once, and all of them after a while."""
    far = Far(Launch(1, Settings()), counting)
    far.stand_in(0, DEADLINE_S)
    silent = [connected(LOOPBACK, far.reach(0).port) for _ in range(20)]
    hello = Hello(RUN, settings_digest(far.launch.figures.settings), 0, 0)
    channel = Channel(far.reach(0), hello, 1 << 20)
    channel.open(DEADLINE_S)
    assert channel.call("living") == [0]
    channel.close()
    for one in silent:
        one.close()
    far.close()
    far.launch.close()


def test_a_text_that_is_too_long_is_refused_with_the_key_too() -> None:
    far = Far(Launch(1, Settings()), counting)
    far.stand_in(0, DEADLINE_S)
    hello = Hello(RUN, settings_digest(far.launch.figures.settings), 0, 0)
    asking, given = greet(connected(LOOPBACK, far.reach(0).port), SECRET, hello._replace(use="number"), None)
    asking.close()
    wire, _ = greet(connected(LOOPBACK, far.reach(0).port), SECRET, hello._replace(generation=given), None)
    wire.send(Kind.CALL, 1, bytes(100_000))
    with pytest.raises(ConnectionError):
        wire.head(1 << 20)
    wire.close()
    far.close()
    far.launch.close()
