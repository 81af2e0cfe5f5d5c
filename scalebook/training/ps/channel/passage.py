"""From another machine to the server: the ends of the workers there, and news for their monitor."""

import os
from collections.abc import Callable
from contextlib import suppress
from mmap import mmap
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

from scalebook.training.ps.channel.channel import Channel, ChannelLost, Reach
from scalebook.training.ps.channel.desk import MOST_TEXT
from scalebook.training.ps.channel.greeting import Hello, Refused, Secret
from scalebook.training.ps.channel.mirror import refuse_far
from scalebook.training.ps.channel.remote_end import RemoteEnd
from scalebook.training.ps.policy.settings import Settings

LOST_CODE: Final = 75
"""Exit code of a process whose other side is lost (EX_TEMPFAIL of sysexits.h); why it noted where its monitor reads."""
COME_AGAIN_S: Final = 30.0
"""How long a worker that was there before may need to come anew."""
_NOTE: Final = 1024  # bytes
NewsLost = ChannelLost
_LOOK_S: Final = 0.01


class Run(NamedTuple):
    """What all machines must know. `name`: the same on all, another for each launch. `host`, `port`: of the server."""

    name: str
    secret: Secret
    tls: bool
    host: str
    port: int
    workers: int
    settings: Settings


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


class Passage:
    """To the server, from one of the other machines; made by its monitor before the fork. `machine`: its number, from
    1; `first`, `count`: of its workers. ValueError for settings that do not go between machines."""

    def __init__(self, run: Run, machine: int, first: int, count: int) -> None:
        refuse_far(run.settings)
        self._run, self._machine, self._first = run, machine, first
        self._notes = Notes(count)
        self._lives = memoryview(mmap(-1, 8 * count)).cast("q")  # incarnations of the workers here, 0 before the first
        self._is_open = memoryview(mmap(-1, 1))  # 1: the server's monitor has met this machine
        self._in = memoryview(mmap(-1, count))  # 1: this worker has been let in
        self._updates = memoryview(mmap(-1, 8 * count)).cast("q")  # that each worker here has seen
        self._news: Channel | None = None
        self._known = 0
        self.unfound = ""
        """Why the server's monitor was not to be asked when last looked for."""

    def _reach(self, gate: int) -> Reach:
        return Reach(self._run.host, self._run.port, self._run.secret, self._run.tls, gate)

    # --- in a worker -------------------------------------------------------------------------------------------------

    def worker(self, worker: int, deadline_s: float) -> RemoteEnd:
        """Become worker `worker`, as soon as the server's monitor has met this machine, so that no run begins that is
        to be refused. Where the server is lost later this process ends at once, with `LOST_CODE`. `Refused`,
        `ChannelLost` where it cannot be reached for so long at first."""
        self._await_meeting(deadline_s)
        run, place = self._run, worker - self._first
        is_first_life = self._lives[place] == 0

        def begins(incarnation: int) -> None:
            self._lives[place] = incarnation

        reach, within_s = self._reach(worker), deadline_s if is_first_life else COME_AGAIN_S
        try:
            end = RemoteEnd(reach, run.name, run.settings, worker, run.workers, within_s, self._lost(worker), begins)
            self._in[place] = 1
            return end
        except (Refused, ChannelLost) as error:
            if not is_first_life:
                self._lost(worker)(str(error))
            raise

    def _await_meeting(self, deadline_s: float) -> None:
        until = monotonic() + deadline_s
        while not self._is_open[0]:
            if monotonic() > until:
                raise ChannelLost(f"channel: the server's monitor has not met this machine for {deadline_s:g} s")
            sleep(_LOOK_S)

    def note_updates(self, worker: int, updates: int) -> None:
        """Of the run, as this worker sees it."""
        self._updates[worker - self._first] = updates

    def _lost(self, worker: int) -> Callable[[str], None]:
        def lost(why: str) -> None:
            self._notes.write(worker - self._first, why)
            os._exit(LOST_CODE)

        return lost

    # --- in the monitor ----------------------------------------------------------------------------------------------

    def why(self, worker: int) -> str:
        """Why a worker has ended whose server was lost; once, empty for others."""
        return self._notes.take(worker - self._first)

    def updates(self) -> int:
        """That workers here know to have been made: the server has made so many, and maybe more."""
        return max(self._updates)

    def has_come_in(self) -> bool:
        """Whether a worker here has taken part."""
        return any(self._in)

    def let_in(self) -> None:
        """The server's monitor has met this machine: its workers may go there."""
        self._is_open[0] = 1

    def find(self, within_s: float) -> bool:
        """Whether the server's monitor can be asked. `Refused`."""
        if self._news is None:
            run, gate = self._run, self._run.workers + self._machine - 1
            hello = Hello(run.name, "", gate, 0)
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
