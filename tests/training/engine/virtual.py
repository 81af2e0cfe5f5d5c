"""A run on production's virtual clock whose workers compute nothing but time, and a line for whatever happens in it.

Who is next, who begins, what is let in, averaged, dropped or damped is the engine's; here is only what is written down,
when workers die, and how long a gradient takes.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import torch
from torch.nn import Parameter
from torch.optim import SGD

from scalebook.training.engine import Settings, SharedRun
from scalebook.training.engine.coordination.measures import PushMeasures, WorkerTimes
from scalebook.training.engine.memory.region import DROPPED, METER
from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.damping import Damping, NoDamping
from scalebook.training.engine.rules.update_rules import Rule, View
from scalebook.training.engine.sim import SimulatedClock, SimulatedWorkers, Watch
from scalebook.training.engine.trace import read_updates
from tests.training.engine.sim.works import Asked

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


@dataclass
class VirtualRun(Watch):
    """`pushes` of each worker, by the rule; `run()` once, then read the rest. Every gradient is 1, the rate 1."""

    rule: Rule
    speeds: Sequence[Speed]
    pushes: int
    damping: Damping = field(default_factory=NoDamping)
    warmup_updates: int = 0
    fates: Sequence[Fate] = ()
    seed: int = 0
    watch: Callable[[View], None] | None = None  # sees every event, and every view that the rule is asked about

    def __post_init__(self) -> None:
        self.trace: list[Event] = []
        self.updates: list[Update] = []
        self.pushed: list[Gradient] = []
        self.dropped: list[Gradient] = []
        self.living = set(range(len(self.speeds)))
        self._left = dict.fromkeys(self.living, self.pushes)
        self._computing: dict[int, Gradient] = {}
        self._numbers: dict[tuple[int, int], int] = {}  # by worker and push
        self._fates = sorted(self.fates, key=lambda fate: fate.event, reverse=True)
        self._draw = random.Random(self.seed)
        self._begun = self._version = self._settled = 0
        self._last = dict.fromkeys(self.living, 0)  # by worker, the base of its last gradient
        self._clock = SimulatedClock(ClockSettings(gradient_s=0.0), len(self.speeds))

    def run(self) -> "VirtualRun":
        """Until everybody has finished or is dead for good."""
        with TemporaryDirectory() as folder:
            settings = Settings(self.rule, self.damping, self.warmup_updates, trace=Path(folder))
            self._run = run = SharedRun(len(self.speeds), settings, self._clock)
            self._workers = workers = SimulatedWorkers(
                run,
                self._clock,
                self._make,
                Asked(lambda worker: self._left[worker] > 0),
                gradient_s=self._seconds,
                watch=self,
            )
            self._look()
            workers.begin_all()
            while (worker := workers.next()) is not None:
                self._push(worker)
            self._read(Path(folder))
            shard = workers.partitions[0].shards[0]
            self.weight = float(shard.views[shard.newest().buffer][0])
            self.times: list[WorkerTimes] = run.worker_times()
            self.measures: list[PushMeasures] = run.pushes()
            workers.detach()
            run.close()
        return self

    @property
    def version(self) -> int:
        return self._version

    def view(self) -> View:
        """This moment, as the rule sees it."""
        with self._workers.partitions[0].admission.locked():
            return self._workers.partitions[0].admission.view()

    def _make(self, worker: int) -> list[SGD]:
        return [SGD([Parameter(torch.zeros(1))], lr=1.0)]

    def _seconds(self, worker: int) -> float:
        return self.speeds[worker](self._draw)

    def _look(self) -> None:
        """Let `watch` see what the rule is asked about."""
        if self.watch is not None:
            admission, seen = self._workers.partitions[0].admission, self.watch
            plain = admission.view

            def watched() -> View:
                view = plain()
                seen(view)
                return view

            admission.view = watched  # type: ignore[method-assign]

    # --- what the scheduler tells ------------------------------------------------------------------------------------

    def settling(self) -> bool:
        """Let those die who are to; whether anything has happened since this was asked last."""
        before, self._settled = self._settled, len(self.trace)
        while self._fates and self._fates[-1].event <= len(self.trace):
            self._die(self._fates.pop())
        return before != len(self.trace)

    def looked(self) -> None:
        """What updates average is read from the engine's own trace, at the end."""
        version = self._workers.partitions[0].shards[0].version
        while self._version < version:
            self._version += 1
            self._note("update", -1, 0)

    def begins(self, worker: int) -> None:
        gradient = Gradient(self._begun, worker, self._workers.joined[worker].clients[0].version)
        self._begun += 1
        self._computing[worker] = gradient
        self._note("begins", worker, gradient.base_version)

    def ends(self, worker: int) -> None:
        self._note("finishes", worker, self._last[worker])

    # --- what happens ------------------------------------------------------------------------------------------------

    def _push(self, worker: int) -> None:
        counters, gradient = self._run.control.partition_counters[0], self._computing.pop(worker)
        before, staleness = self._version, self._version - gradient.base_version
        dropped = counters.shards[0].meters[worker * METER + DROPPED]
        self._last[worker] = gradient.base_version
        self._numbers[worker, counters.begun[worker] + 1] = gradient.number
        at = len(self.trace)
        self._left[worker] -= 1
        self._workers.joined[worker].clients[0].replica.parameters[0].grad = torch.ones(1)
        self._workers.push()
        is_dropped = counters.shards[0].meters[worker * METER + DROPPED] > dropped
        self.pushed.append(gradient)
        if is_dropped:
            self.dropped.append(gradient)
        finished = self.trace[at:]
        del self.trace[at:]
        self._note("is dropped" if is_dropped else "pushes", worker, gradient.base_version, staleness, version=before)
        self.looked()
        self.trace += [one._replace(version=self._version) for one in finished]

    def _die(self, fate: Fate) -> None:
        if self._workers.scheduler.die(fate.worker):
            self.living.remove(fate.worker)
            self._computing.pop(fate.worker, None)
            if fate.away_s is not None:
                self._workers.scheduler.plan_return(fate.worker, self._clock.time_s + fate.away_s)
            self._note("dies", fate.worker, self._version)

    def returns(self, worker: int) -> None:
        self.living.add(worker)
        self._note("returns", worker, self._version)

    def _note(self, what: Happening, worker: int, base: int, staleness: float = 0, version: int | None = None) -> None:
        at_s = round(self._clock.time_s, 6)
        self.trace.append(
            Event(at_s, what, worker, base, self._version if version is None else version, staleness, 1.0)
        )
        if self.watch is not None:
            self.view()

    def _read(self, folder: Path) -> None:
        """What became of the pushes, from the trace that the engine has written."""
        most = self._run.settings.most(len(self.speeds))
        for records in read_updates(folder, 0, 0, most, 1, self._version):
            gradients = [Gradient(self._numbers[one.worker, one.seq], one.worker, one.base_version) for one in records]
            self.updates.append(Update(records[0].version - 1, tuple(gradients), records[0].rate))
        for place, event in enumerate(self.trace):
            if event.what == "update":
                made = self.updates[event.version - 1]
                mean, oldest = sum(made.stalenesses) / len(made.gradients), min(g.base_version for g in made.gradients)
                rate = round(made.rate, 6)
                self.trace[place] = event._replace(base_version=oldest, staleness=round(mean, 6), rate=rate)
