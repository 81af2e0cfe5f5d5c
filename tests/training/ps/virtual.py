"""Production's clients on a virtual clock: all workers of a run in one process, which compute nothing but time.

Who begins, what is let in, averaged, dropped or damped is the engine's; here is only who is next, when workers die, and
how long a gradient takes. Seeded and event-driven: the same settings give the same trace.
"""

import heapq
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, NamedTuple

import torch
from torch.nn import Parameter
from torch.optim import SGD

from scalebook.training.ps import Joined, PushMeasures, Settings, SharedRun, WorkerTimes
from scalebook.training.ps.applying.section import Section
from scalebook.training.ps.clock import Steps, T, Wait
from scalebook.training.ps.memory.region import DROPPED, METER
from scalebook.training.ps.policy.damping import Damping, NoDamping
from scalebook.training.ps.policy.rules import Rule, View
from scalebook.training.ps.trace import read_updates
from scalebook.training.ps.worker.join import join_steps

DEADLINE_S: Final = 10.0
"""Of waits for locks, which nobody else holds; other waits end when nothing is left to happen."""
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


class VirtualClock:
    """The time is what somebody has set, and nobody waits."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> float:
        return self.time_s

    def play(self, steps: Steps[T]) -> T:
        try:
            while True:
                wait = next(steps)
                assert wait.ready(), f"{wait.what()}: play its steps"
        except StopIteration as end:
            result: T = end.value
            return result


class Computes(NamedTuple):
    """A worker may begin its next gradient, and has the version to compute it from."""

    base_version: int


Life = Generator[Wait | Computes, None, None]


@dataclass
class VirtualRun:
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
        self._lives: dict[int, Life] = {}
        self._waiting: dict[int, Wait] = {}
        self._ready: dict[int, int] = {}  # to begin, from which version
        self._computing: dict[int, Gradient] = {}
        self._numbers: dict[tuple[int, int], int] = {}  # by worker and push
        self._agenda: list[tuple[float, int, int]] = []  # time, number of a gradient or -1 for a return, worker
        self._fates = sorted(self.fates, key=lambda fate: fate.event, reverse=True)
        self._draw = random.Random(self.seed)
        self._begun = 0
        self._last = dict.fromkeys(self.living, 0)  # by worker, the base of its last gradient
        self._clock = VirtualClock()

    def run(self) -> "VirtualRun":
        """Until everybody has finished or is dead for good."""
        with TemporaryDirectory() as folder:
            settings = Settings(self.rule, self.damping, self.warmup_updates, trace=Path(folder))
            run = SharedRun(len(self.speeds), settings, self._clock)
            self._run, self._shards = run, list[Section]()
            self._start()
            self._settle()
            while self._agenda:
                self._clock.time_s, number, worker = heapq.heappop(self._agenda)
                if number < 0:
                    self._return(worker)
                elif worker in self._computing and self._computing[worker].number == number:
                    self._push(worker)
                self._settle()
            if self._waiting:
                raise Deadlock(f"{self.rule} leaves workers {sorted(self._waiting)} waiting for ever: {self.view()}")
            self._read(Path(folder))
            shard = self._shards[0].shards[0]
            self.weight = float(shard.views[shard.newest().buffer][0])
            self.times: list[WorkerTimes] = run.worker_times()
            self.measures: list[PushMeasures] = run.pushes()
            run.close()
        return self

    @property
    def version(self) -> int:
        return self._version

    def view(self) -> View:
        """This moment, as the rule sees it."""
        with self._shards[0].admission.locked():
            return self._shards[0].admission.view()

    # --- the workers' lives ----------------------------------------------------------------------------------------

    def _start(self) -> None:
        """All join, which takes no time."""
        self._version = 0
        joining = {worker: self._join(worker) for worker in sorted(self.living)}
        while joining:
            for worker, steps in list(joining.items()):
                try:
                    next(steps)
                except StopIteration as end:
                    del joining[worker]
                    self._lives[worker] = self._life(worker, end.value)
        if self.watch is not None:
            admission, seen = self._shards[0].admission, self.watch
            plain = admission.view

            def watched() -> View:
                view = plain()
                seen(view)
                return view

            admission.view = watched  # type: ignore[method-assign]
        for worker in sorted(self.living):
            self._go_on(worker)

    def _join(self, worker: int) -> Steps[Joined]:
        optimizer = SGD([Parameter(torch.zeros(1))], lr=1.0)
        return join_steps(self._run, self._run.member(worker, DEADLINE_S), [optimizer], common=self._shards)

    def _life(self, worker: int, joined: Joined | None) -> Life:
        if joined is None:
            joined = yield from self._join(worker)
        yield from joined.begin_steps()
        client = joined.clients[0]
        (parameter,) = client.replica.parameters
        while self._left[worker]:
            yield Computes(client.version)
            self._left[worker] -= 1
            parameter.grad = torch.ones(1)
            yield from client.push_steps()
        yield from joined.finish_steps()

    def _go_on(self, worker: int) -> None:
        try:
            step = next(self._lives[worker])
        except StopIteration:
            self._note("finishes", worker, self._last[worker])
        else:
            if isinstance(step, Computes):
                self._ready[worker] = step.base_version
            else:
                self._waiting[worker] = step

    # --- what happens ----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Whatever follows from what has happened: deaths, who is let in, updates, who begins."""
        before = -1
        while before != len(self.trace):
            before = len(self.trace)
            while self._fates and self._fates[-1].event <= len(self.trace):
                self._die(self._fates.pop())
            self._wake()
            for worker in sorted(self._ready):
                self._begin(worker, self._ready.pop(worker))

    def _wake(self) -> None:
        """Those that wait, in order, until nobody can go on."""
        while self._waiting:
            ready = [worker for worker in sorted(self._waiting) if self._waiting[worker].ready()]
            self._note_updates()
            for worker in ready:
                del self._waiting[worker]
                self._go_on(worker)
                self._note_updates()
            if not ready:
                return

    def _begin(self, worker: int, base_version: int) -> None:
        gradient = Gradient(self._begun, worker, base_version)
        self._begun += 1
        self._computing[worker] = gradient
        at_s = self._clock.time_s + self.speeds[worker](self._draw)
        heapq.heappush(self._agenda, (at_s, gradient.number, worker))
        self._note("begins", worker, base_version)

    def _push(self, worker: int) -> None:
        counters, gradient = self._run.control.sections[0], self._computing.pop(worker)
        before, staleness = self._version, self._version - gradient.base_version
        dropped = counters.shards[0].meters[worker * METER + DROPPED]
        self._last[worker] = gradient.base_version
        self._numbers[worker, counters.begun[worker] + 1] = gradient.number
        at = len(self.trace)
        self._go_on(worker)
        is_dropped = counters.shards[0].meters[worker * METER + DROPPED] > dropped
        self.pushed.append(gradient)
        if is_dropped:
            self.dropped.append(gradient)
        finished = self.trace[at:]
        del self.trace[at:]
        self._note("is dropped" if is_dropped else "pushes", worker, gradient.base_version, staleness, version=before)
        self._note_updates()
        self.trace += [one._replace(version=self._version) for one in finished]

    def _note_updates(self) -> None:
        """What they average is read from the engine's own trace, at the end."""
        version = self._shards[0].shards[0].version
        while self._version < version:
            self._version += 1
            self._note("update", -1, 0)

    def _die(self, fate: Fate) -> None:
        worker = fate.worker
        if worker not in self.living:
            return
        self.living.remove(worker)
        for part in (self._computing, self._ready, self._waiting):
            part.pop(worker, None)
        self._lives[worker].close()
        self._run.mark_dead(worker)
        if fate.away_s is not None:
            heapq.heappush(self._agenda, (self._clock.time_s + fate.away_s, -1, worker))
        self._note("dies", worker, self._version)

    def _return(self, worker: int) -> None:
        self.living.add(worker)
        self._note("returns", worker, self._version)
        if self._left[worker]:
            self._run.rejoin(worker)
            self._lives[worker] = self._life(worker, None)
            self._go_on(worker)

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
