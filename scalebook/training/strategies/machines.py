"""The machines of a parameter server's run, for the monitor of each: what they tell each other, and how that ends it.

The first has the shards. What an end on one machine means for the others: the first's is all others', an exception
anywhere is everybody's, and where workers of another machine die or leave the rest trains on.
"""

import json
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, ClassVar, Final, NoReturn

import torch
from typing_extensions import override

from scalebook.training.errors import ConfigError
from scalebook.training.failures import NodeLost, TimedOut, WorkerLost
from scalebook.training.nodes import NODES, Place
from scalebook.training.ps.far import LEAVE_S, NewsLost, OnePort, Passage, Refused
from scalebook.training.strategies.forked import fork, holding_back_sigterm
from scalebook.training.strategies.news import ALIKE, Came, How, NodeEnd, end_of, refuse_unlike
from scalebook.training.strategies.others import Others
from scalebook.training.strategies.processes import Lost

FIND_S: Final = 0.5
"""How long one look for the first machine may take."""
ECHO_S: Final = 3.0
"""How long who has lost the server listens for why."""
KEYS: Final = 12
"""Of a config, in one text."""
KEY_CHARACTERS: Final = 250
"""Of a key; there are no longer ones but in what a person's own classes take."""
DEADLINE_KEY: Final = "trainer.strategy.init_args.deadline_s"
STRATEGY: Final = "trainer.strategy"
log = logging.getLogger(__name__)


def who_comes(devices: int, digest: str, config: Mapping[str, str]) -> tuple[Came, str]:
    """What this machine says when it comes. `digest`: of the engine's settings; `config`: digests by key."""
    versions = f"Scalebook {version('scalebook')}, torch {torch.__version__}"
    seed = os.environ.get("PL_GLOBAL_SEED", "none")
    return Came(socket.gethostname(), os.getpid(), devices, seed, versions, config), digest


def in_letters(config: Mapping[str, str]) -> Iterator[str]:
    """A config's digests by key, in as many texts as they need."""
    items = [(key[:KEY_CHARACTERS], digest) for key, digest in config.items()]
    for start in range(0, len(items), KEYS):
        yield json.dumps(["config", dict(items[start : start + KEYS])])


def missing(who: str, place: Place, deadline_s: float, where: str) -> TimedOut:
    """Of a machine that has not come."""
    return TimedOut(
        f"{NODES}: is {place.nodes}, and {who}, for {deadline_s:g} s: {where}. Start it there as here, with its own "
        f"NODE_RANK, or raise {DEADLINE_KEY}."
    )


class Machines(Others):
    """For one machine. `names`: of those that have come."""

    def __init__(self, place: Place, me: tuple[Came, str], deadline_s: float) -> None:
        self._place, self._me, self._deadline_s = place, me, deadline_s
        self._came: dict[int, Came] = {}
        self._until = 0.0
        self._has_told = False

    @override
    def begin(self) -> None:
        self._until = time.monotonic() + self._deadline_s

    def name(self, machine: int) -> str:
        """`node 1 (host)`."""
        host = f" ({self._came[machine].host})" if machine in self._came else ""
        return f"node {machine // self._place.tasks}{host}"

    def ended(self, machine: int, end: NodeEnd) -> BaseException:
        """What an end there is here."""
        if end.how is How.STOPPED:
            return SystemExit(128 + signal.SIGTERM)
        if end.how is How.DIED:
            return WorkerLost(end.worker, f"on {self.name(machine)}, {end.cause}")
        return NodeLost(f"{self.name(machine)} has ended with {end.cause}")


class ServerSide(Machines):
    """For the machine with the shards."""

    ends_all: ClassVar[bool] = True
    """Whether an exception on another machine is everybody's end."""

    def __init__(self, place: Place, port: OnePort, me: tuple[Came, str], deadline_s: float) -> None:
        super().__init__(place, me, deadline_s)
        self.port = port
        self._came[0] = me[0]
        self._configs: dict[int, dict[str, str]] = {}  # of machines that are coming
        self._left: set[int] = set()
        with holding_back_sigterm() as mask:
            self._keeper = fork("server", 0, lambda _: port.keep(), 1, [], mask)
        port.say(json.dumps(["here", me[0]._replace(config={})]))

    @override
    def check(self, stopping: bool) -> None:
        self.hear()
        if self._until and self.may_begin():
            self._until = 0.0
        if self._until and time.monotonic() > self._until and not stopping:
            self.miss()

    def may_begin(self) -> bool:
        """Whether enough machines have come."""
        return len(self._came) == self._place.count

    def miss(self) -> NoReturn:
        """Those that have not come in time."""
        gone = sorted({index // self._place.tasks for index in range(self._place.count) if index not in self._came})
        who = f"node {' and '.join(map(str, gone))} has not come"
        raise missing(who, self._place, self._deadline_s, f"to {self._place.where}")

    def hear(self) -> None:
        """What the others have said. Raises what ends the run here because of it."""
        for machine, text in self.port.news():
            what, told = json.loads(text)
            if what == "config":
                self._configs.setdefault(machine, {}).update(told)
            elif what == "came":
                came = Came(*told[0])._replace(config=self._configs.pop(machine, {}))
                self._meet(machine, came, str(told[1]))
            elif what == "end":
                self.hear_end(machine, NodeEnd(How(told[0]), str(told[1]), int(told[2])))
            elif what == "knocks":
                self.hear_knock(int(told))

    def hear_knock(self, worker: int) -> None:
        """This worker, whom nobody here stands in for, wants to be taken in."""

    def hear_loss(self, lost: Lost) -> None:
        """The rest goes on without this worker."""

    def refuse(self, machine: int, why: ConfigError) -> None:
        """A machine that was started otherwise: it ends the run."""
        raise why

    def _meet(self, machine: int, came: Came, digest: str) -> None:
        self._came[machine] = came
        self._left.discard(machine)
        try:
            self._compare(machine, came, digest)
        except ConfigError as why:
            self.refuse(machine, why)
        else:
            self.port.say(json.dumps(["met", machine]))

    def _compare(self, machine: int, came: Came, digest: str) -> None:
        first, config = self._me
        refuse_unlike(first, came, self.name(0), self.name(machine))
        if digest != config:
            why = f"has other arguments on {self.name(0)}, and others on {self.name(machine)}"
            raise ConfigError(STRATEGY, why, ALIKE)

    def hear_end(self, machine: int, end: NodeEnd) -> None:
        self._left.add(machine)
        if end.how is How.RAISED and self.ends_all:
            raise self.ended(machine, end)
        if end.how is not How.DONE:
            cause = f": {end.cause}" if end.cause else ""
            log.warning("%s has left%s. Training goes on.", self.name(machine), cause)

    def has_left(self, machine: int) -> bool:
        """Whether nobody there will come again."""
        return machine in self._left

    @override
    def explained(self, error: BaseException) -> BaseException:
        """Tell the others, whose end it is too."""
        self._has_told = True
        if isinstance(error, ConfigError):
            self.tell_refusal(error, None)
        else:
            self.port.say(json.dumps(["end", end_of(error)]))
        return error

    def tell_refusal(self, why: ConfigError, machine: int | None) -> None:
        """To all, or to this machine as it came last."""
        whom = None if machine is None else [machine, self._came[machine].pid]
        problem = why.problem
        self.port.say(json.dumps(["refused", [[problem.key, problem.message, problem.remedy], whom]]))

    @override
    def end(self) -> None:
        if not self._has_told:
            self.port.say(json.dumps(["end", NodeEnd(How.DONE)]))
        self.port.let_go()
        self._keeper.end(LEAVE_S + 2)
        self.port.close()


class FarSide(Machines):
    """For a machine whose workers reach the shards by the way there."""

    def __init__(self, place: Place, way: Passage, me: tuple[Came, str], deadline_s: float) -> None:
        super().__init__(place, me, deadline_s)
        self.way = way
        self._says: list[str] = [*in_letters(me[0].config), json.dumps(["came", (me[0]._replace(config={}), me[1])])]
        self._deaths: list[tuple[int, str]] = []
        self._is_met = False
        self._end: NodeEnd | None = None  # the first's
        self._refused: ConfigError | None = None
        self.lost = ""
        """Why a worker here has lost the server."""

    @override
    def begin(self) -> None:
        super().begin()
        self._exchange()

    @override
    def check(self, stopping: bool) -> None:
        self._exchange()
        if self._refused is not None:
            raise self._refused
        if self._end is not None and self._end.how is not How.DONE:
            raise self.ended(0, self._end)
        if self._end is not None and not self.way.has_come_in():
            raise NodeLost(f"{self.name(0)} has ended the run before a worker of this machine took part")
        if not self._is_met and time.monotonic() > self._until:
            raise missing("node 0 has not come", self._place, self._deadline_s, self.way.unfound)

    def tell_death(self, worker: int, cause: str) -> None:
        """Of a worker here: the first decides what follows."""
        self._deaths.append((worker, f"on {self._own_name}, {cause}"))
        self._exchange()

    @property
    def _own_name(self) -> str:
        return f"node {self._place.node} ({self._me[0].host})"

    def _exchange(self) -> None:
        """Say what is to be said, hear what is new, as far as the first machine can be reached."""
        try:
            if not self.way.find(FIND_S):
                return
            while self._says:
                self.way.say(self._says[0])
                self._says.pop(0)
            while self._deaths:
                self.way.tell_death(*self._deaths[0])
                self._deaths.pop(0)
            for text in self.way.news():
                self._hear(*json.loads(text))
        except NewsLost:
            pass  # its workers' own channels tell whether the server is there
        except Refused as refused:
            if not self._is_met:
                raise ConfigError(NODES, f"cannot begin: {refused}", "Start the same on all.") from refused

    def _hear(self, what: str, told: Any) -> None:
        if what == "here":
            self._came[0] = Came(*told)
        elif what == "met":
            self._is_met |= told == self._place.index
        elif what == "refused":
            problem, whom = told
            if whom in (None, [self._place.index, self._me[0].pid]):
                self._refused = ConfigError(*map(str, problem))
        elif what == "end":
            self._end = NodeEnd(How(told[0]), str(told[1]), int(told[2]))

    @override
    def explained(self, error: BaseException) -> BaseException:
        """The first's end, where that is the cause of this one. Else the first is told."""
        self._has_told = True
        is_lost = bool(self.lost) and isinstance(error, WorkerLost)
        is_echo = is_lost or isinstance(error, Refused | NewsLost)
        until = time.monotonic() + ECHO_S
        while is_echo and self._end is None and self._refused is None and time.monotonic() < until:
            self._exchange()
            time.sleep(FIND_S / 5)
        if self._refused is not None:
            return self._refused
        if self._end is not None and self._end.how is not How.DONE:
            return self.ended(0, self._end)
        if is_lost:
            return NodeLost(f"{self.name(0)} is lost to this machine, at {self._place.where}: {self.lost}")
        self._says.append(json.dumps(["end", end_of(error)]))
        self._exchange()
        return error

    @override
    def end(self) -> None:
        if not self._has_told:
            self._says.append(json.dumps(["end", NodeEnd(How.DONE)]))
            self._exchange()
        self.way.leave()
