"""A run whose workers are on several machines, for who starts it: the server's one port, and the way there.

On the server's machine `OnePort` is made before the fork: a process keeps it, another stands in for each worker that
computes elsewhere. On any other machine `Passage` gives its workers their ends, and its monitor the news.
"""

import json
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from mmap import mmap
from threading import Event, Thread
from time import monotonic
from typing import Final, NamedTuple, NoReturn

from torch.nn import Module
from torch.optim import Optimizer

from scalebook.training.ps.channel.desk import MOST_TEXT, Board, DeskCalls, desks, pair
from scalebook.training.ps.channel.door import Gone
from scalebook.training.ps.channel.gate import Gate, Porter, turn_away
from scalebook.training.ps.channel.greeting import Hello, Refused, Secret, serving
from scalebook.training.ps.channel.mirror import settings_digest
from scalebook.training.ps.channel.passage import COME_AGAIN_S, LOST_CODE, NewsLost, Notes, Passage, Run
from scalebook.training.ps.channel.post import Post
from scalebook.training.ps.launch import Launch
from scalebook.training.ps.worker.end import DataCursor, Meetings

__all__ = [
    "COME_AGAIN_S", "LEAVE_S", "NewsLost", "OnePort", "Passage", "Refused", "Run", "Saying", "Secret", "StandInEnd",
    "run_name", "settings_digest",
]  # fmt: skip

LEAVE_S: Final = 8.0
"""How long the port is kept at the end, for other machines to hear of it."""


class Saying(NamedTuple):
    """A text from machine `machine`'s monitor."""

    machine: int
    text: str


class OnePort:
    """Made by the server's monitor before the fork. `first`: the first worker that computes elsewhere. `machines`: how
    many others there are. `elastic`: who computes elsewhere may come and go. ValueError for settings that do not go
    between machines."""

    def __init__(
        self, launch: Launch, run: Run, listener: socket.socket, first: int, machines: int, elastic: bool = False
    ) -> None:
        self._launch, self._run, self._listener = launch, run, listener
        self._first, self._machines = first, machines
        self._tls = serving() if run.tls else None
        self._gates = [Gate() for _ in range(run.workers + machines)]
        self._posts = {
            worker: launch.post(worker, run.name, self._gates[worker], run.secret, self._tls)
            for worker in range(first, run.workers)
        }
        self._notes = Notes(run.workers)
        self._elastic = elastic
        self._taken = memoryview(mmap(-1, run.workers))  # 1: somebody stands in for this worker, or soon will
        self._taken[:] = bytes([not elastic or worker < first for worker in range(run.workers)])
        self._awaited: dict[int, int] = {}
        self._board, self._wall = pair()
        self._wall.setblocking(False)

    # --- in the monitor ----------------------------------------------------------------------------------------------

    def news(self) -> list[Saying]:
        """What other machines have said since the last call."""
        told: list[Saying] = []
        with suppress(BlockingIOError):
            while text := self._wall.recv(MOST_TEXT):
                told.append(Saying(*json.loads(text)))
        return told

    def say(self, text: str) -> None:
        """To all other machines; they hear it within a second or two."""
        with suppress(OSError):  # the process that keeps the port is gone
            self._wall.send(text.encode())

    def why(self, worker: int) -> str:
        """Why the stand-in of this worker has ended, if it noted that; once."""
        return self._notes.take(worker)

    def await_again(self, worker: int) -> None:
        """A worker has died, and a new life of it may come."""
        self._awaited[worker] = self._posts[worker].lives.newest

    def is_awaited(self, worker: int) -> bool:
        """Whether it was to come again, and has not."""
        return self._awaited.get(worker) == self._posts[worker].lives.newest

    def take(self, worker: int) -> None:
        """Somebody begins to stand in for this worker, who may connect from now on."""
        self._taken[worker] = 1

    def release(self, worker: int) -> None:
        """Nobody stands in for it any more; where workers may come and go a new life of it may knock."""
        self._taken[worker] = 0

    def close(self) -> None:
        """This process's handles."""
        self._listener.close()
        for gate in self._gates:
            gate.close()
        self._board.close()
        self._wall.close()

    # --- in the processes that were started --------------------------------------------------------------------------

    def stand_in(self, worker: int, deadline_s: float) -> "StandInEnd":
        """Become who stands in for this worker."""
        return StandInEnd(self._launch, worker, self._first, deadline_s, self._posts[worker], self._notes)

    def keep(self) -> None:
        """Listen, until the monitor has said its last text and others have heard it, or a while later."""
        board, over = Board(), Event()

        def copy() -> None:
            while text := self._board.recv(MOST_TEXT):
                board.put(text.decode()) if text != b"." else over.set()

        def calls(number: int) -> DeskCalls:
            machine = 1 + number - self._run.workers

            def said(text: str) -> None:
                self._board.send(json.dumps([machine, text]).encode())

            def died(worker: int, incarnation: int, why: str) -> None:
                if self._first <= worker < self._run.workers:
                    self._gates[worker].tell_death(incarnation, why)

            return DeskCalls(machine, board, said, died)

        hello = Hello(self._run.name, "", 0, 0)
        numbers = range(self._run.workers, self._run.workers + self._machines)
        desks({number: self._gates[number] for number in numbers}, self._run.secret, self._tls, hello, calls)
        Thread(target=copy, name="board", daemon=True).start()
        until: list[float] = []

        def is_over() -> bool:
            if over.is_set() and not until:
                until.append(monotonic() + LEAVE_S)
            return bool(until) and (board.is_read() or monotonic() > until[0])

        Porter(self._listener, self._gates, self._run.secret, self._tls, self._given_up, self._turn_away).keep(is_over)

    def let_go(self) -> None:
        """By the monitor: nothing more will be said, and who keeps the port may go."""
        self.say(".")

    def _given_up(self, number: int) -> bool:
        return number < self._run.workers and not (self._taken[number] and number in self._launch.living())

    def _turn_away(self, hello: Hello) -> int:
        """For good, or for now: then the monitor is told of a worker that may be taken in."""
        if not self._elastic or hello.run != self._run.name or hello.worker not in self._posts:
            turn_away(hello)
        lives = self._posts[hello.worker].lives
        if hello.use == "number":
            return lives.give()
        if not lives.may_begin(hello.incarnation):
            turn_away(hello)
        with suppress(BlockingIOError):  # it will knock again
            self._board.send(json.dumps([0, json.dumps(["knocks", hello.worker])]).encode(), socket.MSG_DONTWAIT)
        raise Refused("channel: this worker is not taken in so far.", later=True)


class StandInEnd:
    """Of a process that stands in for a worker: what it needs to make the same model and optimizers, as a server does
    (`ServerEnd`), and then to serve it."""

    def __init__(self, launch: Launch, worker: int, first: int, deadline_s: float, post: Post, notes: Notes) -> None:
        server = launch.server(0, deadline_s)
        self.cursor: DataCursor = server.cursor
        self.meetings: Meetings = server.meetings
        self._await, self._deadline_s = server.await_workers, deadline_s
        self._worker, self._first, self._post, self._notes = worker, first, post, notes

    def await_workers(self, rendezvous: int) -> None:
        """Before the model's set-up: until the workers here have prepared the data. At later ones they wait for the
        worker that this process is to serve."""
        if rendezvous == 1:
            self._await(rendezvous, range(self._first))

    def serve(self, optimizers: Sequence[Optimizer], model: Module | None = None) -> None:
        """Until the worker has trained and gone. Where it is lost this process ends at once, with `LOST_CODE`."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Lightning's handler would let a worker end in order
        come_s = COME_AGAIN_S if self._post.lives.have_begun else 2 * self._deadline_s
        try:
            self._post.serve(optimizers, self._deadline_s, come_s, model, self._lost)
        except Gone as gone:
            self._lost(str(gone))

    def _lost(self, why: str) -> NoReturn:
        self._notes.write(self._worker, why)
        os._exit(LOST_CODE)


def run_name(environment: Mapping[str, str], where: str, launches: int) -> str:
    """The same on all machines of a run that are launched for the same time."""
    one = environment.get("TORCHELASTIC_RUN_ID") or environment.get("SLURM_JOB_ID") or "by hand"
    return f"{where} {one} {environment.get('TORCHELASTIC_RESTART_COUNT', '0')} {launches}"[:200]
