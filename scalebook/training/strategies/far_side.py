"""A machine whose workers reach the shards on another: what its monitor tells the first, and hears of it."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from typing_extensions import override

from scalebook.training.errors import ConfigError
from scalebook.training.failures import NodeLost, WorkerLost
from scalebook.training.nodes import NODES, Place
from scalebook.training.ps.far import NewsLost, Passage, Refused
from scalebook.training.strategies.machines import Machines, missing
from scalebook.training.strategies.news import Came, How, NodeEnd, end_of

FIND_S: Final = 0.5
"""How long one look for the first machine may take."""
ECHO_S: Final = 3.0
"""How long who has lost the server listens for why."""
KEYS: Final = 12
"""Of a config, in one text."""
KEY_CHARACTERS: Final = 250
"""Of a key; there are no longer ones but in what a person's own classes take."""


def in_letters(config: Mapping[str, str]) -> Iterator[str]:
    """A config's digests by key, in as many texts as they need."""
    items = [(key[:KEY_CHARACTERS], digest) for key, digest in config.items()]
    for start in range(0, len(items), KEYS):
        yield json.dumps(["config", dict(items[start : start + KEYS])])


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
        self._saved: tuple[str, int] | None = None  # the first's newest checkpoint, and its updates at most
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

    @override
    def has_met(self) -> bool:
        return self._is_met

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
            if self._is_met:
                self.way.let_in()
        elif what == "refused":
            problem, whom = told
            if whom in (None, [self._place.index, self._me[0].pid]):
                self._refused = ConfigError(*map(str, problem))
        elif what == "saved":
            self._saved = str(told[0]), int(told[1])
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
            where = f"{self.name(0)} is lost to this machine, at {self._place.where}"
            return NodeLost(f"{where}: {self.lost}. {self._what_is_lost()}")
        self._says.append(json.dumps(["end", end_of(error)]))
        self._exchange()
        return error

    def _what_is_lost(self) -> str:
        """As far as is known here."""
        made = self.way.updates()
        if self._saved is None:
            return f"It had written no checkpoint that is known here: {made:,} updates or more are lost"
        path, updates = self._saved
        lost = f"{made - updates:,} updates or more" if made > updates else "no updates that are known here"
        return f"Resume on all from its checkpoint {path}: since then {lost} were made, and are lost"

    @override
    def end(self) -> None:
        if not self._has_told:
            self._says.append(json.dumps(["end", NodeEnd(How.DONE)]))
            self._exchange()
        self.way.leave()
