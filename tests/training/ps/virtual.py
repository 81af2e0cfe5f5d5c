"""A run on a virtual clock: the engine's rules and dampings over workers that are nothing but compute times.

What the engine does, without memory, processes or numbers: versions, rounds, clocks, drops, the warm-up, deaths. Seeded
and event-driven: the same settings give the same trace.
"""

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from scalebook.training.ps.policy.damping import Damping, NoDamping
from scalebook.training.ps.policy.rules import Arrival, Rule, View

Speed = Callable[[random.Random], float]
"""Seconds for one gradient."""
Happening = Literal["begins", "pushes", "is dropped", "dies", "returns", "finishes", "update"]


def constant(seconds: float) -> Speed:
    """Always the same."""
    return lambda _: seconds


def steady(mean_s: float, spread: float) -> Speed:
    """Uniform within +-`spread` (0 to 1) of the mean."""
    return lambda draw: mean_s * (1 + spread * (2 * draw.random() - 1))


def exponential(mean_s: float) -> Speed:
    """Memoryless: how long it has been computing says nothing about how long it will."""
    return lambda draw: draw.expovariate(1 / mean_s)


class Fate(NamedTuple):
    """A worker is dead from the event with this number on, and back `away_s` later (None: never).

    Event 0 is before the start: who dies there joins late.
    """

    worker: int
    event: int
    away_s: float | None = None


class Event(NamedTuple):
    """A line of the trace. An update has worker -1 and, as its base, the oldest that it averages."""

    time_s: float
    what: Happening
    worker: int
    base_version: int
    version: int  # after the event
    staleness: float  # of a push: when it arrives; of an update: the mean
    rate: float


class Gradient(NamedTuple):
    number: int
    worker: int
    base_version: int


class Update(NamedTuple):
    """`version` is the one it was applied to."""

    version: int
    gradients: tuple[Gradient, ...]
    rate: float

    @property
    def stalenesses(self) -> list[int]:
        return [self.version - gradient.base_version for gradient in self.gradients]


class Deadlock(AssertionError):
    """Nobody computes, somebody is left, and nothing will happen any more."""


@dataclass
class VirtualRun:
    """`pushes` of each worker, by the rule; `run()` once, then read the rest."""

    rule: Rule
    speeds: Sequence[Speed]
    pushes: int
    damping: Damping = field(default_factory=NoDamping)
    warmup_updates: int = 0
    fates: Sequence[Fate] = ()
    seed: int = 0
    watch: Callable[[View], None] = lambda view: None  # sees every event

    def __post_init__(self) -> None:
        workers = range(len(self.speeds))
        self.rule.check(len(workers))
        self.trace: list[Event] = []
        self.updates: list[Update] = []
        self.pushed: list[Gradient] = []
        self.dropped: list[Gradient] = []
        self.living, self.inside = set(workers), set[int]()
        self._left = dict.fromkeys(workers, self.pushes)
        self._clocks = dict.fromkeys(workers, 0)
        self._round: list[Gradient] = []
        self._computing: dict[int, Gradient] = {}
        self._agenda: list[tuple[float, int, int]] = []  # time, number of a gradient or -1 for a return, worker
        self._fates = sorted(self.fates, key=lambda fate: fate.event, reverse=True)
        self._draw = random.Random(self.seed)
        self._numbers, self._now = 0, 0.0

    def run(self) -> "VirtualRun":
        """Until everybody has finished or is dead for good."""
        self._settle()
        while self._agenda:
            self._now, number, worker = heapq.heappop(self._agenda)
            if number < 0:
                self._return(worker)
            elif worker in self._computing and self._computing[worker].number == number:
                self._push(self._computing.pop(worker))
            self._settle()
        if self._active():
            raise Deadlock(f"{self.rule} leaves workers {sorted(self._active())} waiting for ever: {self.view()}")
        return self

    @property
    def version(self) -> int:
        return len(self.updates)

    def view(self) -> View:
        """This moment, as the rule sees it."""
        return View(
            self.version,
            len(self._round) if self.rule.gathers else 0,
            frozenset(gradient.worker for gradient in self._round),
            {worker: self._clocks[worker] for worker in sorted(self.inside & self._active())},
        )

    def _active(self) -> set[int]:
        """Living workers with pushes left."""
        return {worker for worker in self.living if self._left[worker]}

    def _settle(self) -> None:
        """Whatever follows from what has happened: deaths, who is let in, updates, who begins."""
        before = -1
        while before != len(self.trace):
            before = len(self.trace)
            while self._fates and self._fates[-1].event <= len(self.trace):
                self._die(self._fates.pop())
            self._let_in()
            while self._round and len(self._round) >= self.rule.needed(self.view()):
                self._update()
                self._let_in()
            for worker in sorted(self.inside & self._active() - set(self._computing)):
                if self.rule.may_begin(worker, self.view()):
                    self._begin(worker)

    def _let_in(self) -> None:
        """All once the warm-up is over; before that one worker, the lowest when nobody is inside."""
        active = self._active()
        waiting = sorted(active - self.inside)
        if self.version < self.warmup_updates:
            waiting = [] if self.inside & active else waiting[:1]
        slowest = min(self.view().clocks.values(), default=0)
        for worker in waiting:
            self.inside.add(worker)
            self._clocks[worker] = slowest

    def _begin(self, worker: int) -> None:
        gradient = Gradient(self._numbers, worker, self.version)
        self._numbers += 1
        self._computing[worker] = gradient
        heapq.heappush(self._agenda, (self._now + self.speeds[worker](self._draw), gradient.number, worker))
        self._note("begins", worker, gradient.base_version)

    def _push(self, gradient: Gradient) -> None:
        worker, base = gradient.worker, gradient.base_version
        arrival = Arrival(worker, base, self.version)
        self.pushed.append(gradient)
        accepted = self.rule.accepts(arrival, self.view()) and self.damping.accepts(arrival.staleness)
        (self._round if accepted else self.dropped).append(gradient)
        self._clocks[worker] += 1
        self._left[worker] -= 1
        self._note("pushes" if accepted else "is dropped", worker, base, arrival.staleness)
        if not self.rule.gathers and self._round:
            self._update()
        if not self._left[worker]:
            self._note("finishes", worker, base)

    def _update(self) -> None:
        gradients, self._round = tuple(self._round), []
        made = Update(self.version, gradients, 0.0)
        stalenesses = made.stalenesses
        made = made._replace(rate=self.damping.rate(stalenesses))
        self.updates.append(made)
        mean = sum(stalenesses) / len(stalenesses)
        self._note("update", -1, min(gradient.base_version for gradient in gradients), mean, made.rate)

    def _die(self, fate: Fate) -> None:
        worker = fate.worker
        if worker not in self.living:
            return
        self.living.remove(worker)
        self.inside.discard(worker)
        self._computing.pop(worker, None)
        if fate.away_s is not None:
            heapq.heappush(self._agenda, (self._now + fate.away_s, -1, worker))
        self._note("dies", worker, self.version)

    def _return(self, worker: int) -> None:
        self.living.add(worker)
        self._note("returns", worker, self.version)

    def _note(self, what: Happening, worker: int, base: int, staleness: float = 0, rate: float = 1.0) -> None:
        event = Event(round(self._now, 6), what, worker, base, self.version, round(staleness, 6), round(rate, 6))
        self.trace.append(event)
        self.watch(self.view())
