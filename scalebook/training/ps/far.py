"""A run whose workers are on several machines, for who starts it: the server's one port, and the way there.

On the server's machine `OnePort` is made before the fork: a process keeps it, another stands in for each worker that
computes elsewhere. On any other machine `Passage` gives its workers their ends, and its monitor the news.
"""

import json
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from mmap import mmap
from threading import Event, Thread
from time import monotonic, time_ns
from typing import Any, Final, NamedTuple, NoReturn

from torch.nn import Module
from torch.optim import Optimizer

from scalebook.training.ps.channel.certificate import serving
from scalebook.training.ps.channel.channel import Channel, ChannelLost, Reach
from scalebook.training.ps.channel.desk import MOST_TEXT, Board, DeskCalls, desks, pair
from scalebook.training.ps.channel.door import Gone
from scalebook.training.ps.channel.gate import Gate
from scalebook.training.ps.channel.greeting import Hello, Refused, Secret
from scalebook.training.ps.channel.mirror import refuse_far, settings_digest
from scalebook.training.ps.channel.porter import Porter
from scalebook.training.ps.channel.post import Post
from scalebook.training.ps.channel.remote_end import RemoteEnd
from scalebook.training.ps.channel.sockets import DEAD_S
from scalebook.training.ps.launch import Launch
from scalebook.training.ps.policy.settings import Settings
from scalebook.training.ps.worker.end import DataCursor, Meetings

__all__ = [
    "DEAD_S",
    "LEAVE_S",
    "NewsLost",
    "OnePort",
    "Passage",
    "Refused",
    "Run",
    "Saying",
    "Secret",
    "StandInEnd",
    "refuse_far",
    "run_name",
    "settings_digest",
]

LOST_CODE: Final = 75
"""Exit code of a process whose other side is lost (EX_TEMPFAIL of sysexits.h); why it noted where its monitor reads."""
COME_AGAIN_S: Final = 30.0
"""How long a worker that was there before may need to come anew."""
LEAVE_S: Final = 8.0
"""How long the port is kept at the end, for other machines to hear of it."""
_NOTE: Final = 1024  # bytes
NewsLost = ChannelLost


class Run(NamedTuple):
    """What all machines must know. `name`: the same on all, another for each launch. `host`, `port`: of the server."""

    name: str
    secret: Secret
    tls: bool
    host: str
    port: int
    workers: int
    settings: Settings


class Saying(NamedTuple):
    """A text from machine `machine`'s monitor."""

    machine: int
    text: str


class Notes:
    """One short text for each number, in memory that processes share."""

    def __init__(self, count: int) -> None:
        self._memory = mmap(-1, _NOTE * count)

    def write(self, number: int, text: str) -> None:
        self._memory[number * _NOTE : (number + 1) * _NOTE] = text.encode()[: _NOTE - 1].ljust(_NOTE, b"\0")

    def take(self, number: int) -> str:
        """And forget it."""
        text = self._memory[number * _NOTE : (number + 1) * _NOTE].rstrip(b"\0").decode(errors="replace")
        self.write(number, "")
        return text


class OnePort:
    """Made by the server's monitor before the fork. `first`: the first worker that computes elsewhere. `machines`: how
    many others there are. ValueError for settings that do not go between machines."""

    def __init__(self, launch: Launch, run: Run, listener: socket.socket, first: int, machines: int) -> None:
        self._launch, self._run, self._listener = launch, run, listener
        self._first, self._machines = first, machines
        self._tls = serving() if run.tls else None
        self._gates = [Gate() for _ in range(run.workers + machines)]
        self._posts = {
            worker: launch.post(worker, run.name, self._gates[worker], run.secret, self._tls)
            for worker in range(first, run.workers)
        }
        self._notes = Notes(run.workers)
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
        self._awaited[worker] = self._posts[worker].newest

    def is_awaited(self, worker: int) -> bool:
        """Whether it was to come again, and has not."""
        return self._awaited.get(worker) == self._posts[worker].newest

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

        Porter(self._listener, self._gates, self._run.secret, self._tls, self._given_up).keep(is_over)

    def let_go(self) -> None:
        """By the monitor: nothing more will be said, and who keeps the port may go."""
        self.say(".")

    def _given_up(self, number: int) -> bool:
        return number < self._run.workers and number not in self._launch.living()


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
        come_s = COME_AGAIN_S if self._post.newest else 2 * self._deadline_s
        try:
            self._post.serve(optimizers, self._deadline_s, come_s, model, self._lost)
        except Gone as gone:
            self._lost(str(gone))

    def _lost(self, why: str) -> NoReturn:
        self._notes.write(self._worker, why)
        os._exit(LOST_CODE)


class Passage:
    """To the server, from one of the other machines; made by its monitor before the fork. `machine`: its number, from
    1; `first`, `count`: of its workers. ValueError for settings that do not go between machines."""

    def __init__(self, run: Run, machine: int, first: int, count: int) -> None:
        refuse_far(run.settings)
        self._run, self._machine, self._first = run, machine, first
        self._notes = Notes(count)
        self._lives = memoryview(mmap(-1, 8 * count)).cast("q")  # incarnations of the workers here, 0 before the first
        self._news: Channel | None = None
        self._known = 0
        self.unfound = ""
        """Why the server's monitor was not to be asked when last looked for."""

    def _reach(self, gate: int) -> Reach:
        return Reach(self._run.host, self._run.port, self._run.secret, self._run.tls, gate)

    # --- in a worker -------------------------------------------------------------------------------------------------

    def worker(self, worker: int, deadline_s: float) -> RemoteEnd:
        """Become worker `worker`. Where the server is lost later this process ends at once, with `LOST_CODE`.
        `Refused`, `ChannelLost` where it cannot be reached for so long at first."""
        run, place = self._run, worker - self._first
        is_first_life, self._lives[place] = self._lives[place] == 0, time_ns()
        reach, within_s = self._reach(worker), deadline_s if is_first_life else COME_AGAIN_S
        try:
            return RemoteEnd(
                reach, run.name, run.settings, worker, run.workers, self._lives[place], within_s, self._lost(worker)
            )
        except (Refused, ChannelLost) as error:
            if not is_first_life:
                self._lost(worker)(str(error))
            raise

    def _lost(self, worker: int) -> Callable[[str], None]:
        def lost(why: str) -> None:
            self._notes.write(worker - self._first, why)
            os._exit(LOST_CODE)

        return lost

    # --- in the monitor ----------------------------------------------------------------------------------------------

    def why(self, worker: int) -> str:
        """Why a worker has ended whose server was lost; once, empty for others."""
        return self._notes.take(worker - self._first)

    def find(self, within_s: float) -> bool:
        """Whether the server's monitor can be asked. `Refused`."""
        if self._news is None:
            run, gate = self._run, self._run.workers + self._machine - 1
            hello = Hello(run.name, "", gate, time_ns())
            news = Channel(self._reach(gate), hello, MOST_TEXT)
            try:
                news.open(within_s, pulse=False)
            except ChannelLost as error:
                self.unfound = str(error)
                return False
            self._news, self._known = news, 0
        return True

    def say(self, text: str) -> None:
        """To the server's monitor. `NewsLost`."""
        self._call("say", text)

    def news(self) -> list[str]:
        """What it has said since the last call. `NewsLost`."""
        texts = [str(text) for text in self._call("news", self._known)]
        self._known += len(texts)
        return texts

    def tell_death(self, worker: int, why: str) -> None:
        """Of a worker here, so that nobody there waits for signs of life. `NewsLost`."""
        self._call("died", worker, self._lives[worker - self._first], why)

    def leave(self) -> None:
        """Nothing more will be said."""
        if self._news is not None:
            with suppress(OSError):
                self._call("leave")
        if self._news is not None:
            self._news.close()
            self._news = None

    def _call(self, name: str, *arguments: Any) -> Any:
        if self._news is None:
            raise NewsLost("channel: not connected")
        try:
            return self._news.call(name, *arguments)
        except OSError as error:
            self._news.close()
            self._news = None
            raise NewsLost(str(error)) from error


def run_name(environment: Mapping[str, str], where: str, launches: int) -> str:
    """The same on all machines of a run that are launched for the same time."""
    one = environment.get("TORCHELASTIC_RUN_ID") or environment.get("SLURM_JOB_ID") or "by hand"
    return f"{where} {one} {environment.get('TORCHELASTIC_RESTART_COUNT', '0')} {launches}"[:200]
