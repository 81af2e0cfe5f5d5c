"""Our wire between nodes beside pyzmq: CPU time of both ends for a gradient there and the parameters back.

Everything but the wire is the product's: worker's end, proxy, engine, call numbers, stored replies. Over pyzmq a frame
of ours is a message, or (`parts`) a message with its head and others of at most 1 MB; connections, heartbeats and
encryption (CURVE, with keys derived from the run's) are its own. It runs over loopback, without computing gradients;
the shards' update is in all figures. Systems take turns, and ratios are within one turn. pyzmq is not one of
Scalebook's packages:

    pip install --target /tmp/pyzmq pyzmq
    PYTHONPATH=/tmp/pyzmq python -m benchmarks.wire [--turns 8] [--seconds 1] [--megabytes 0.1 1 10 40]
                                                    [--designs whole parts]
"""

import argparse
import json
import mmap
import os
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, cast
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import Linear, Module, Sequential
from torch.optim import SGD
from typing_extensions import override

from benchmarks.cluster import HOST, RUN, end_at_once
from benchmarks.engine_ps import DEADLINE_S
from benchmarks.machine import Others
from scalebook.training.engine.launch import Launch
from scalebook.training.engine.net import remote_end, remote_worker_service
from scalebook.training.engine.net.acceptor import ConnectionAcceptor, WorkerGone
from scalebook.training.engine.net.channel import Channel, ProxyAddress
from scalebook.training.engine.net.handshake import KEY_BYTES, Hello, Secret, Use, serving
from scalebook.training.engine.net.remote_end import RemoteEnd
from scalebook.training.engine.net.wire import (
    DEAD_S,
    HEAD,
    MAGIC,
    PULSE_S,
    SLICE_S,
    Kind,
    ProtocolError,
    Wire,
    WireHead,
    listening,
)
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.lightning.processes.run_workers import run_workers

zmq: Any = import_module("zmq") if find_spec("zmq") else None
PART: Final = 1 << 20
"""Most bytes of a message, with `parts`."""
AHEAD: Final = 16
"""Messages that may wait in a socket."""
WARM_UP: Final = 8
DESIGNS: Final = ("whole", "lent", "parts")
"""`whole`: one message per frame. `lent`: the same, but gradients are used where pyzmq received them. `parts`: in
parts."""
OURS: Final = "ours"


class ZmqWire(Wire):
    """Frames as messages of a socket. `peer`: the partner of a ROUTER; the first messages of other peers go to
    `others`. `lost`: whether the connection is lost. `lends`: gradients stay where they were received."""

    def __init__(
        self,
        connection: Any,
        design: str,
        lost: Callable[[], bool],
        peer: Sequence[bytes] = (),
        others: list[Any] | None = None,
        lends: bool = False,
    ) -> None:
        self._zmq, self._design, self._lost, self._peer, self._lends = connection, design, lost, list(peer), lends
        self._others = [] if others is None else others
        self._rest: list[Any] = []  # of the message whose head was read last
        self.first: list[Any] = []
        """A message that has been read already."""

    @override
    def send(self, kind: Kind, number: int = 0, text: bytes = b"", body: Sequence[memoryview] = ()) -> None:
        size = sum(map(len, body))
        head = HEAD.pack(MAGIC, kind, len(text), 0, number, size) + text
        whole = [one for one in body if len(one)]
        if self._design != "parts":
            self._say([head, *whole])
            return
        self._say([head])
        for one in whole:
            for start in range(0, len(one), PART):
                self._say([one[start : start + PART]])

    def _say(self, message: list[Any]) -> None:
        until = time.monotonic() + DEADLINE_S
        while True:
            try:
                self._zmq.send_multipart([*self._peer, *message], copy=False)
                return
            except zmq.Again as error:
                if self._lost() or time.monotonic() > until:
                    raise ConnectionResetError("the connection is lost") from error
            except zmq.ZMQError as error:
                raise ConnectionResetError(f"not sent: {error}") from error

    @override
    def head(self, most_text: int, lives: Callable[[], bool] = lambda: True, within_s: float | None = None) -> WireHead:
        until = None if within_s is None else time.monotonic() + within_s
        message, self.first = self.first or self._message(lives, until), []
        head, *self._rest = message
        content = head if isinstance(head, bytes) else head.bytes
        magic, kind, text, _, number, body = HEAD.unpack(content[: HEAD.size])
        if magic != MAGIC or text > most_text or text + HEAD.size != len(content):
            raise ProtocolError("no frame")
        self._text = content[HEAD.size :]
        return WireHead(Kind(kind), number, text, body)

    def _message(self, lives: Callable[[], bool], until: float | None) -> list[Any]:
        """The next message, without its sender."""
        while True:
            try:
                parts: list[Any] = self._zmq.recv_multipart(copy=False)
            except zmq.Again as error:
                if self._lost():
                    raise ConnectionResetError("the connection is lost") from error
                if not lives() or (until is not None and time.monotonic() > until):
                    raise TimeoutError("nothing came") from error
                continue
            if [part.bytes for part in parts[: len(self._peer)]] == self._peer:
                return parts[len(self._peer) :]
            self._others.append(parts)
            raise ConnectionResetError("a newer connection")

    @override
    def text(self, head: WireHead) -> bytes:
        return bytes(self._text)

    @override
    def body(self, head: WireHead, into: Sequence[memoryview]) -> None:
        rooms = [room for room in into if len(room)]
        if head.body != sum(map(len, rooms)):
            raise ProtocolError("another size")
        if self._design == "parts":
            for room in rooms:
                for start in range(0, len(room), PART):
                    self._part(room[start : start + PART])
            return
        for room, frame in zip(rooms, self._rest, strict=True):
            if self._lends and isinstance(lent := getattr(room.obj, "tensor", None), Tensor):
                taken = torch.frombuffer(frame.buffer, dtype=lent.dtype)
                lent.set_(taken.untyped_storage(), 0, lent.shape, lent.stride())
            else:
                room[:] = frame.buffer
        self._rest = []

    def _part(self, room: memoryview) -> None:
        until = time.monotonic() + DEADLINE_S
        while True:
            try:
                for peer in self._peer:
                    if (sender := self._zmq.recv(copy=False)).bytes != peer:
                        self._others.append([sender, *self._zmq.recv_multipart(copy=False)])
                        raise ConnectionResetError("a newer connection")
                if self._zmq.recv_into(room) != len(room):
                    raise ProtocolError("another size")
                return
            except zmq.Again as error:
                if self._lost() or time.monotonic() > until:
                    raise TimeoutError("nothing came") from error

    @override
    def close(self) -> None:
        if not self._peer:
            self._zmq.close(linger=0)


def curve(socket_: Any, secret: Secret, serves: bool) -> None:
    """Set keys derived from the run's, so that nobody else has them."""
    mine, theirs = (b"server", b"worker") if serves else (b"worker", b"server")
    own, other = (import_module("zmq.utils.z85").encode(secret.proof(b"curve " + role)) for role in (mine, theirs))
    socket_.curve_secretkey, socket_.curve_publickey = own, zmq.curve_public(own)
    if serves:
        socket_.curve_server = True
    else:
        socket_.curve_serverkey = zmq.curve_public(other)


def settled(socket_: Any, design: str) -> None:
    """Set the options of both sides: a deadline of each wait, heartbeats as often as ours, few messages ahead."""
    socket_.rcvtimeo = socket_.sndtimeo = int(SLICE_S * 1000)
    socket_.linger = 0
    socket_.sndhwm = socket_.rcvhwm = AHEAD
    socket_.heartbeat_ivl, socket_.heartbeat_timeout = int(PULSE_S * 1000), int(DEAD_S * 1000)
    socket_.heartbeat_ttl = int(DEAD_S * 1000)
    if design == "parts":
        socket_.maxmsgsize = PART + 256  # of CURVE


class Watch(threading.Thread):
    """Notices when a socket loses its connection, which pyzmq does not report."""

    def __init__(self, socket_: Any) -> None:
        super().__init__(daemon=True)
        self._events = socket_.get_monitor_socket()
        self._socket, self._is_over = socket_, False
        self._open, self._mine = set[int](), cast(int | None, None)
        self.lost_at: float | None = None
        """When the connection was lost, if it was."""
        self.start()

    @override
    def run(self) -> None:
        from zmq.utils.monitor import recv_monitor_message  # type: ignore[import-not-found]

        while not self._is_over:
            if self._events.poll(int(SLICE_S * 1000)):
                event = recv_monitor_message(self._events)
                if event["event"] in (zmq.EVENT_ACCEPTED, zmq.EVENT_CONNECTED):
                    self._open.add(event["value"])
                    if self._mine == event["value"]:
                        self.lost_at = None
                elif event["event"] in (zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL):
                    self._open.discard(event["value"])
                    if self._mine in (None, event["value"]):
                        self._mine, self.lost_at = self._mine and -1, time.monotonic()

    def follow(self, connection: int) -> None:
        """Watch this connection, the worker's, among all that strangers have."""
        self._mine = connection
        self.lost_at = None if connection in self._open else time.monotonic()

    def is_lost(self) -> bool:
        return self.lost_at is not None

    def end(self) -> None:
        """Stop, before the socket is closed."""
        self._is_over = True
        self.join()
        self._socket.disable_monitor()


class ZmqChannel(Channel):
    """As ours, except that each connection is a socket of pyzmq with an identity of its own."""

    design = ""
    _watch: Watch | None = None
    _greeting_s = DEADLINE_S  # less when the other side has been there

    @override
    def open(self, within_s: float, pulse: bool = True) -> None:
        self._context_zmq = zmq.Context(io_threads=1)
        self._hello = self._hello._replace(generation=1)
        self._connect(time.monotonic() + within_s)
        self._greeting_s = 1.0

    @override
    def _connect(self, until: float) -> Wire:
        socket_ = self._context_zmq.socket(zmq.DEALER)
        settled(socket_, self.design)
        socket_.reconnect_ivl = -1  # a call in flight would be lost, and nobody told: it is sent again by its number
        socket_.identity = b"w" + secrets.token_bytes(8)
        if self._reach.tls:
            curve(socket_, self._reach.secret, serves=False)
        self._watch = watch = Watch(socket_)
        socket_.connect(f"tcp://{self._reach.host}:{self._reach.port}")
        self._wire = wire = ZmqWire(socket_, self.design, watch.is_lost)
        wire.send(Kind.HELLO, text=json.dumps(self._hello._asdict()).encode())
        if wire.head(1024, within_s=min(self._greeting_s, until - time.monotonic())).kind != Kind.WELCOME:
            raise ProtocolError("neither taken nor refused")
        return wire

    @override
    def _drop(self) -> None:
        if self._watch is not None:
            self._watch.end()
            self._watch = None
        super()._drop()

    @override
    def close(self) -> None:
        super().close()
        self._context_zmq.destroy(linger=0)


class ZmqDoor(ConnectionAcceptor):
    """One ROUTER for all connections of a worker, at the port where ours listens."""

    design = ""

    @override
    def open(self) -> None:
        self._context_zmq, self._owner = zmq.Context(io_threads=1), threading.get_ident()
        self._zmq = self._context_zmq.socket(zmq.ROUTER)
        settled(self._zmq, self.design)
        if self._tls is not None:
            curve(self._zmq, self._secret, serves=True)
        self._zmq.use_fd = os.dup(self._listener.fileno())  # which it closes
        self._zmq.router_mandatory = True  # else it drops what a slow worker has no room for, and tells nobody
        self._watch = Watch(self._zmq)
        host, port = self._listener.getsockname()[:2]  # type: ignore[attr-defined]  # a socket
        self._zmq.bind(f"tcp://{host}:{port}")
        self._others: list[Any] = []

    @override
    def close(self) -> None:
        self._is_closed = True
        if threading.get_ident() == self._owner and not self._zmq.closed:  # libzmq aborts where another thread closes
            self._watch.end()
            self._context_zmq.destroy(linger=0)

    @override
    def lives(self) -> bool:
        lost = self._watch.lost_at
        if not self._gone and lost is not None and time.monotonic() > lost + DEAD_S:
            self._lose(f"worker {self._expected.worker} was silent for {DEAD_S:g} s")
        return super().lives()

    @override
    def wire(self, within_s: float, use: Use = "calls") -> Wire:
        until = time.monotonic() + within_s
        expected = self._expected
        while time.monotonic() < until and self.lives():
            try:
                parts = self._others.pop() if self._others else self._zmq.recv_multipart(copy=False)
            except zmq.Again:
                continue
            peer, lends = [parts[0].bytes], self.design == "lent"
            wire = ZmqWire(self._zmq, self.design, self._watch.is_lost, peer, self._others, lends)
            wire.first = parts[1:]
            try:
                head = wire.head(1024)
            except ProtocolError:  # a part of what an older connection has sent
                continue
            if head.kind == Kind.HELLO:
                hello = Hello(**json.loads(wire.text(head)))
                if (hello.run, hello.worker, hello.digest) == (expected.run, expected.worker, expected.digest):
                    self._watch.follow(parts[-1].get(zmq.SRCFD))
                    wire.send(Kind.WELCOME, hello.generation)
                    return wire
        raise WorkerGone(self._gone or "nobody came")


class Cost(NamedTuple):
    """Cost of one gradient there and the parameters back."""

    cpu_ms: float
    wall_ms: float


def model_of(megabytes: float) -> Module:
    """Four square layers, float32."""
    torch.manual_seed(0)
    side = round((megabytes * 1e6 / 16) ** 0.5)
    return Sequential(*[Linear(side, side) for _ in range(4)])


def optimizer_of(model: Module) -> SGD:
    return SGD(model.parameters(), lr=1e-3)


@contextmanager
def over(system: str) -> Iterator[None]:
    """Use the product's connections, or one of `DESIGNS` in their place."""
    if system == OURS:
        yield
        return
    with (
        patch.object(remote_end, "Channel", type("_Channel", (ZmqChannel,), {"design": system})),
        patch.object(remote_worker_service, "ConnectionAcceptor", type("_Door", (ZmqDoor,), {"design": system})),
    ):
        yield


def cost(system: str, megabytes: float, encrypts: bool, seconds: float, workers: int = 1) -> Cost:
    """Measure with real processes on both sides."""
    secret, tls = Secret(secrets.token_bytes(KEY_BYTES)), serving() if encrypts else None
    launch, listeners = Launch(workers, Settings()), [listening(HOST) for _ in range(workers)]
    posts = [launch.post(worker, RUN, one, secret, tls) for worker, one in enumerate(listeners)]
    pids = memoryview(mmap.mmap(-1, 8 * workers)).cast("q")

    def stand_in(worker: int) -> None:
        pids[worker] = os.getpid()
        with over(system):
            posts[worker].serve([optimizer_of(model_of(megabytes))], DEADLINE_S, DEADLINE_S, lost=end_at_once)

    def body(worker: int) -> tuple[float, float, int]:
        model = model_of(megabytes)
        gradients = [1e-3 * torch.randn_like(parameter) for parameter in model.parameters()]
        reach = ProxyAddress(HOST, listeners[worker].getsockname()[1], secret, encrypts)
        with over(system):
            end = RemoteEnd(reach, RUN, Settings(), worker, workers, DEADLINE_S)
        joined = end.join([optimizer_of(model)])
        joined.start()
        joined.begin()

        def push() -> None:
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.grad = gradient
            joined.clients[0].push()

        for _ in range(WARM_UP):
            push()
        cpu_s, began, count = -both_cpu_s(pids[worker]), time.perf_counter(), 0
        while time.perf_counter() < began + seconds:
            push()
            count += 1
        wall_s = time.perf_counter() - began
        cpu_s += both_cpu_s(pids[worker])
        joined.finish()
        joined.wait_for_others()
        joined.detach()
        end.close()
        return cpu_s, wall_s, count

    try:
        parts = run_workers(workers, body, servers=workers, serve=stand_in, threads=1)
        count = sum(part[2] for part in parts)
        return Cost(1000 * sum(part[0] for part in parts) / count, 1000 * sum(part[1] for part in parts) / count)
    finally:
        launch.close()
        for listener in listeners:
            listener.close()


def both_cpu_s(other: int) -> float:
    """User and system time of this process and another, over all threads: the kernel's clock of a process by its id."""
    return time.process_time() + time.clock_gettime((~other << 3) | 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds to measure each system in each turn")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[0.1, 1, 10, 40], help="MB of parameters")
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=["whole", "parts"], help="designs of pyzmq")
    arguments = parser.parse_args()
    if zmq is None:
        raise SystemExit("pyzmq is not here; see --help")
    others = Others()
    print("| MB | encrypted | design | CPU ms, ours | CPU ms, pyzmq | ratio of CPU | wall ms, ours | wall ms, pyzmq |")
    print("|---:|---|---|---:|---:|---|---:|---:|")
    for megabytes in arguments.megabytes:
        for encrypts in (False, True):
            systems = [OURS, *arguments.designs]
            turns: list[dict[str, Cost]] = []
            for turn in range(arguments.turns):
                order = systems if turn % 2 else systems[::-1]
                turns.append({name: cost(name, megabytes, encrypts, arguments.seconds) for name in order})
            for design in arguments.designs:
                print(row(megabytes, encrypts, design, turns), flush=True)
    print(f"\n{others.sentence()}")


def row(megabytes: float, encrypts: bool, design: str, turns: Sequence[dict[str, Cost]]) -> str:
    """A row of medians; of the ratio also the range."""
    ours, theirs = ([turn[name] for turn in turns] for name in (OURS, design))
    ratios = [there.cpu_ms / here.cpu_ms for here, there in zip(ours, theirs, strict=True)]
    cpu = [f"{statistics.median(one.cpu_ms for one in costs):.2f}" for costs in (ours, theirs)]
    wall = [f"{statistics.median(one.wall_ms for one in costs):.2f}" for costs in (ours, theirs)]
    ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} – {max(ratios):.2f})"
    return f"| {megabytes:g} | {'yes' if encrypts else 'no'} | {design} | {' | '.join([*cpu, ratio, *wall])} |"


if __name__ == "__main__":
    main()
