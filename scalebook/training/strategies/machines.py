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
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar, Final, NoReturn

import torch
from typing_extensions import override

from scalebook.training.errors import ConfigError
from scalebook.training.failures import NodeLost, TimedOut, WorkerLost
from scalebook.training.nodes import NODES, Place
from scalebook.training.ps.far import LEAVE_S, OnePort
from scalebook.training.ps.launch import Launch
from scalebook.training.strategies.forked import fork, holding_back_sigterm
from scalebook.training.strategies.news import ALIKE, Came, How, NodeEnd, end_of, refuse_unlike
from scalebook.training.strategies.others import Others
from scalebook.training.strategies.processes import Lost

DEADLINE_KEY: Final = "trainer.strategy.init_args.limits.deadline_s"
STRATEGY: Final = "trainer.strategy"
MEETS_S: Final = 0.05
"""Between two looks at the others until they have met, which workers elsewhere wait for."""
log = logging.getLogger(__name__)


def who_comes(devices: int, digest: str, config: Mapping[str, str]) -> tuple[Came, str]:
    """What this machine says when it comes. `digest`: of the engine's settings; `config`: digests by key."""
    versions = f"Scalebook {version('scalebook')}, torch {torch.__version__}"
    seed = os.environ.get("PL_GLOBAL_SEED", "none")
    return Came(socket.gethostname(), os.getpid(), devices, seed, versions, config), digest


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

    def has_met(self) -> bool:
        """Whether nobody waits for news of this machine any more."""
        raise NotImplementedError

    @override
    def look_s(self) -> float:
        return super().look_s() if self.has_met() else MEETS_S

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

    def __init__(self, place: Place, port: OnePort, me: tuple[Came, str], deadline_s: float, launch: Launch) -> None:
        super().__init__(place, me, deadline_s)
        self.port, self._launch = port, launch
        self._saved: tuple[Path, int] | None = None  # the newest checkpoint that was told, and when it was written
        self._came[0] = me[0]
        self._configs: dict[int, dict[str, str]] = {}  # of machines that are coming
        self._left: set[int] = set()
        with holding_back_sigterm() as mask:
            self._keeper = fork("server", 0, lambda _: port.keep(), 1, [], mask)
        port.say(json.dumps(["here", me[0]._replace(config={})]))

    @override
    def check(self, stopping: bool) -> None:
        self.hear()
        self._tell_saved()
        if self._until and self.may_begin():
            self._until = 0.0
        if self._until and time.monotonic() > self._until and not stopping:
            self.miss()

    def _tell_saved(self) -> None:
        """Of a new checkpoint, so that who loses this machine can say what is lost. It has so many updates at most."""
        path = self._launch.checkpoint()
        try:
            saved = None if path is None else (path, path.stat().st_mtime_ns)
        except FileNotFoundError:  # another takes its place at this moment
            return
        if saved is not None and saved != self._saved:
            self._saved = saved
            self.port.say(json.dumps(["saved", [str(path), self._launch.figures.counts().updates]]))

    @override
    def has_met(self) -> bool:
        return not self._until

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
