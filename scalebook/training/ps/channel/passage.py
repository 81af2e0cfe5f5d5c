"""From another machine to the server: the ends of the workers there, and news for their monitor."""

import os
from collections.abc import Callable
from mmap import mmap
from typing import Final, NamedTuple

from scalebook.training.ps.channel.channel import ChannelLost, Reach
from scalebook.training.ps.channel.greeting import Refused, Secret
from scalebook.training.ps.channel.mailbox import RemoteMailbox
from scalebook.training.ps.channel.mirror import refuse_far
from scalebook.training.ps.channel.remote_end import RemoteEnd
from scalebook.training.ps.policy.settings import Settings

LOST_CODE: Final = 75
"""Exit code of a process whose other side is lost (EX_TEMPFAIL of sysexits.h); why it noted where its monitor reads."""
COME_AGAIN_S: Final = 30.0
"""How long a worker that was there before may need to come anew."""
_NOTE: Final = 1024  # bytes


class Run(NamedTuple):
    """What all machines must know. `name`: the same on all, another for each launch. `host`, `port`: of the server.
    `machines`: how many others there are; `workers`: of all."""

    name: str
    secret: Secret
    tls: bool
    host: str
    port: int
    machines: int
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


class Passage(RemoteMailbox):
    """To the server, from one of the other machines; made by its monitor before the fork. `machine`: its number, from
    1; `first`, `count`: of its workers. ValueError for settings that do not go between machines."""

    def __init__(self, run: Run, machine: int, first: int, count: int) -> None:
        refuse_far(run.settings)
        super().__init__(run.name, Reach(run.host, run.port, run.secret, run.tls, machine - 1))
        self._run, self._first = run, first
        self._notes = Notes(count)
        self._lives = memoryview(mmap(-1, 8 * count)).cast("q")  # incarnations of the workers here, 0 before the first
        self._in = memoryview(mmap(-1, count))  # 1: this worker has been let in
        self._updates = memoryview(mmap(-1, 8 * count)).cast("q")  # that each worker here has seen

    # --- in a worker -------------------------------------------------------------------------------------------------

    def worker(self, worker: int, deadline_s: float) -> RemoteEnd:
        """Become worker `worker`, as soon as the server's monitor has met this machine, so that no run begins that is
        to be refused. Where the server is lost later this process ends at once, with `LOST_CODE`. `Refused`,
        `ChannelLost` where it cannot be reached for so long at first."""
        self.met.await_number(deadline_s)
        run, place = self._run, worker - self._first
        is_first_life = self._lives[place] == 0

        def begins(incarnation: int) -> None:
            self._lives[place] = incarnation

        reach = self._reach._replace(gate=run.machines + worker)
        within_s = deadline_s if is_first_life else COME_AGAIN_S
        try:
            end = RemoteEnd(reach, run.name, run.settings, worker, run.workers, within_s, self._lost(worker), begins)
            self._in[place] = 1
            return end
        except (Refused, ChannelLost) as error:
            if not is_first_life:
                self._lost(worker)(str(error))
            raise

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

    def tell_death(self, worker: int, why: str) -> None:
        """Of a worker here, so that nobody there waits for signs of life. `ChannelLost`."""
        self._call("died", worker, self._lives[worker - self._first], why)
