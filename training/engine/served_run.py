"""A run whose workers are on several nodes: the server's port, and the other nodes' connections to it.

The server's node makes a `ServerEndpoint` before the fork: one process keeps the port, and one is the proxy of each
remote worker. Every other node makes a `ServerConnection`, which gives its workers their ends. Both are mailboxes for
the monitors.
"""

import json
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from mmap import mmap
from typing import NoReturn

from torch.nn import Module
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.engine.launch import Launch
from scalebook.training.engine.net.acceptor import WorkerGone
from scalebook.training.engine.net.channel import ChannelLost, ProxyAddress
from scalebook.training.engine.net.connection_handoff import turn_away
from scalebook.training.engine.net.handshake import Hello, Refused, Secret, serving
from scalebook.training.engine.net.mailbox import LEAVE_S, MonitorMailbox, RemoteMailbox, StartSignal
from scalebook.training.engine.net.remote_end import COME_AGAIN_S, LOST_CODE, Run, ServerConnection, WorkerNotes
from scalebook.training.engine.net.remote_worker_service import RemoteWorkerService
from scalebook.training.engine.net.version_mirror import settings_digest
from scalebook.training.engine.net.wire import DEAD_S, PULSE_S
from scalebook.training.engine.worker.worker_end import DataCursor, MessageExchange

__all__ = [
    "COME_AGAIN_S",
    "DEAD_S",
    "LEAVE_S",
    "PULSE_S",
    "ChannelLost",
    "MonitorMailbox",
    "ProxyAddress",
    "Refused",
    "RemoteMailbox",
    "Run",
    "Secret",
    "ServerConnection",
    "ServerEndpoint",
    "StartSignal",
    "WorkerProxyEnd",
    "run_name",
    "settings_digest",
]  # fmt: skip


class ServerEndpoint(MonitorMailbox):
    """Made by the server's monitor before the fork. `first`: the first remote worker. `elastic`: whether remote workers
    may join and leave. ValueError for settings that cannot run over several nodes."""

    def __init__(self, launch: Launch, run: Run, listener: socket.socket, first: int, elastic: bool = False) -> None:
        tls = serving() if run.tls else None
        super().__init__(run.name, run.secret, tls, listener, run.machines, run.workers)
        self._launch, self._first = launch, first
        self._posts = {
            worker: launch.post(worker, run.name, self._handoffs[run.machines + worker], run.secret, tls)
            for worker in range(first, run.workers)
        }
        self._notes = WorkerNotes(run.workers)
        self._elastic = elastic
        self._taken = memoryview(mmap(-1, run.workers))  # 1: somebody stands in for this worker, or soon will
        self._taken[:] = bytes([not elastic or worker < first for worker in range(run.workers)])
        self._awaited: dict[int, int] = {}

    # --- in the monitor ----------------------------------------------------------------------------------------------

    def why(self, worker: int) -> str:
        """Why this worker's proxy has ended, if it left a reason; returned once."""
        return self._notes.pop(worker)

    def await_again(self, worker: int) -> None:
        """Expect a new generation of a dead worker."""
        self._awaited[worker] = self._posts[worker].lives.newest

    def is_awaited(self, worker: int) -> bool:
        """Whether a new generation is expected and has not connected."""
        return self._awaited.get(worker) == self._posts[worker].lives.newest

    def mark_served(self, worker: int) -> None:
        """Let this worker connect: its proxy is about to start."""
        self._taken[worker] = 1

    def release(self, worker: int) -> None:
        """Refuse this worker: it has no proxy any more. With `elastic` the monitor hears of new attempts."""
        self._taken[worker] = 0

    # --- in the processes that were started --------------------------------------------------------------------------

    def stand_in(self, worker: int, deadline_s: float) -> "WorkerProxyEnd":
        """Become the proxy of this worker."""
        return WorkerProxyEnd(self._launch, worker, self._first, deadline_s, self._posts[worker], self._notes)

    @override
    def _tell_death(self, worker: int, generation: int, why: str) -> None:
        if worker in self._posts:
            self._handoffs[self._machines + worker].tell_death(generation, why)

    @override
    def _given_up(self, number: int) -> bool:
        worker = number - self._machines
        return worker >= 0 and not (self._taken[worker] and worker in self._launch.living())

    @override
    def _turn_away(self, hello: Hello) -> int:
        """Refuse for good, or for now; in the second case tell the monitor that this worker may be admitted."""
        if not self._elastic or hello.run != self._name or hello.worker not in self._posts:
            turn_away(hello)
        lives = self._posts[hello.worker].lives
        if hello.use == "number":
            return lives.next_generation()
        if not lives.may_begin(hello.generation):
            turn_away(hello)
        with suppress(BlockingIOError):  # it will knock again
            self._board.send(json.dumps([0, json.dumps(["knocks", hello.worker])]).encode(), socket.MSG_DONTWAIT)
        raise Refused("channel: this worker is not admitted yet.", later=True)


class WorkerProxyEnd:
    """The end of a process that is a worker's proxy: makes the same model and optimizers, as a server does
    (`ServerEnd`), then serves the worker."""

    def __init__(
        self, launch: Launch, worker: int, first: int, deadline_s: float, post: RemoteWorkerService, notes: WorkerNotes
    ) -> None:
        server = launch.server(0, deadline_s)
        self.cursor: DataCursor = server.cursor
        self.meetings: MessageExchange = server.meetings
        self._await, self._deadline_s = server.await_workers, deadline_s
        self._worker, self._first, self._post, self._notes = worker, first, post, notes

    def await_workers(self, rendezvous: int) -> None:
        """Before the model's set-up: wait until the workers of this node have prepared the data. Later rendezvous are
        no-ops, since the others then wait for the worker that this process serves."""
        if rendezvous == 1:
            self._await(rendezvous, range(self._first))

    def serve(self, optimizers: Sequence[Optimizer], model: Module | None = None) -> None:
        """Serve until the worker has trained and left. If it is lost, this process ends at once with `LOST_CODE`."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Lightning's handler would let a worker end in order
        come_s = COME_AGAIN_S if self._post.lives.have_begun else 2 * self._deadline_s
        try:
            self._post.serve(optimizers, self._deadline_s, come_s, model, self._lost)
        except WorkerGone as gone:
            self._lost(str(gone))

    def _lost(self, why: str) -> NoReturn:
        self._notes.write(self._worker, why)
        os._exit(LOST_CODE)


def run_name(environment: Mapping[str, str], launches: int) -> str:
    """A name that is the same on all nodes of one launch."""
    one = environment.get("TORCHELASTIC_RUN_ID") or environment.get("SLURM_JOB_ID") or "by hand"
    return f"{one} {environment.get('TORCHELASTIC_RESTART_COUNT', '0')} {launches}"[-200:]
