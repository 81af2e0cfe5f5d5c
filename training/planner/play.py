"""A run's timing, simulated on the engine: its rules, rounds and queues, with one number as each shard's parameters.

The bytes of a push and a pull are declared, so that nothing is computed and little is moved: 512 workers take seconds.
Same profile, rule and seed, same figures.
"""

import math
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch.nn import Parameter
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.engine import DeclaredBytes, Line, SharedRun, SimulatedClock, SimulatedWorkers, Watch
from scalebook.training.engine.rules import (
    Async,
    ClockSettings,
    Communication,
    Damping,
    Distribution,
    NoDamping,
    NoLocalSteps,
    Rule,
    Settings,
    Sync,
)
from scalebook.training.planner.answers import Point
from scalebook.training.planner.closed_forms import (
    ENOUGH,
    FEW,
    LONG,
    lengthened,
    one_worker,
    saturates,
    stretched,
    sum_of,
    waits_in_queues,
)
from scalebook.training.pricing import Profile, mean_s

PEER_NUMBERS: Final = 1000
"""Of a peer, so that its messages may be parts of them."""
LEAST: Final = 500
"""Fewest gradients that are counted."""
EACH: Final = 20
"""Fewest gradients of each worker, up to MANY in all."""
MANY: Final = 800
"""Fewest gradients if some workers wait for the slowest: how far they are apart changes slowly."""
ALWAYS: Final = 4
"""Fewest gradients of each worker in any case."""
ROUNDS: Final = 2
"""The same if all wait for each other, so that each update begins anew."""
WARM_UP: Final = 0.5
"""Gradients before those that count, as a share of them: all workers begin at the same moment."""


class EndlessWork:
    """A `Work`: there is always another batch."""

    def take_batch(self, worker: int) -> bool:
        return True

    def mark_pushed(self, worker: int) -> None:
        """Nothing."""

    def may_come_back(self, worker: int) -> bool:
        return False

    def lost(self, worker: int) -> None:
        """Nothing."""

    def returns(self, worker: int) -> None:
        """Nothing."""


FIRST_ROUNDS: Final = 3
"""The same where all wait for each other."""


class NullOptimizer(Optimizer):
    """So many numbers for each shard, which no step changes. Not made by torch's constructor, whose first call imports
    its compiler, as the first step of SGD does: 1.2 s."""

    def __init__(self, shards: int, numbers: int = 1) -> None:
        self.defaults, self.state = {}, defaultdict(dict)
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = OrderedDict(), OrderedDict()
        self.param_groups = [{"params": [Parameter(torch.zeros(numbers)) for _ in range(shards)], "lr": 0.0}]

    @override
    def step(self, closure: object = None) -> None:  # type: ignore[override]  # a loss that nobody has
        """Nothing."""


class SharedCores:
    """Queues gradients for the cores of a machine that workers share, in the order of asking.

    `applying_s`: seconds of the core after each gradient, to apply its push.
    """

    def __init__(self, clock: SimulatedClock, cores: int, applying_s: float) -> None:
        self._clock, self._applying_s = clock, applying_s
        self._lines = [Line() for _ in range(cores)]

    def gradient_s(self, worker: int) -> float:
        """Seconds until the worker's next gradient is done, waiting included."""
        now_s = self._clock.now()
        return self.done_s(worker, now_s) - now_s

    def done_s(self, worker: int, asked_s: float) -> float:
        """When the worker's next gradient is done, if it asks for a core at `asked_s`."""
        first = min(self._lines, key=lambda line: line.free_s)
        return first.serve(asked_s, self._clock.gradient_s(worker) + self._applying_s) - self._applying_s

    @property
    def waited_s(self) -> float:
        """Seconds that all gradients so far have waited for a core."""
        return sum(line.waited_s for line in self._lines)


class OverlappedGradients:
    """Gradients that begin when the previous push leaves, and wait for what comes back from it. `cores`: which they
    queue for, if workers share a machine."""

    def __init__(self, clock: SimulatedClock, cores: SharedCores | None = None) -> None:
        self._clock, self._cores = clock, cores
        self._left_s: dict[int, float] = {}  # by worker, when its last push did

    def gradient_s(self, worker: int) -> float:
        """The remaining seconds of the worker's next gradient."""
        now_s = self._clock.now()
        begun_s = self._left_s.get(worker, now_s)
        done_s = self._cores.done_s(worker, begun_s) if self._cores else begun_s + self._clock.gradient_s(worker)
        self._left_s[worker] = max(now_s, done_s)
        return self._left_s[worker] - now_s


@dataclass
class _Reading:
    """What has happened so far."""

    compute_s: float
    wait_s: float
    communicate_s: float
    version: int
    applied: int
    dropped: int
    cores_waited_s: float
    lines: list[tuple[float, float]]  # busy and waited seconds: a server on the average, inward, outward
    time_s: float


class _Watch(Watch):
    """When updates were made, and how stale gradients were when they arrived."""

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None  # time and version, after the first moment that counts
        self.last = (0.0, 0)  # after the last moment that is over
        self._now = (0.0, 0)
        self.stale: Counter[int] = Counter()
        self.counts = False
        self.players: SimulatedWorkers | None = None
        self.clock: SimulatedClock | None = None
        self._gradients: Counter[int] = Counter()
        self.n_push = 1

    def settling(self) -> bool:
        assert self.players is not None
        assert self.clock is not None
        version = self.players.partitions[0].shards[-1].version
        if version != self._now[1]:
            if (time_s := self.clock.now()) > self._now[0]:
                self.last = self._now
                if self.counts and self.first is None:
                    self.first = self.last
            self._now = time_s, version
        return False

    def begins(self, worker: int) -> None:
        assert self.players is not None
        outcome = self.players.pushed.get(worker)
        self._gradients[worker] += 1
        if self.counts and outcome is not None and outcome.applied and (self._gradients[worker] - 1) % self.n_push == 0:
            self.stale[outcome.staleness] += 1


_KNOWN: Final[dict[str, Point]] = {}
"""Simulations of this process, by all that decides them: several questions ask for the same one."""
KEPT: Final = 1000


def play(
    profile: Profile,
    workers: int,
    rule: Rule | None = None,
    shards: int = 1,
    clock: ClockSettings | None = None,
    seed: int = 0,
    cores: int | None = None,
    gradients: int | None = None,
    local: Communication | None = None,
    overlap: bool = False,
    damping: Damping | None = None,
) -> Point:
    """Simulate a run of `workers`, in steady state. `clock`: instead of the profile's; `cores`: as in the profile.

    `gradients`: how many count; `local`: when workers communicate; `overlap`: they compute while a push travels, and
    have a core each, or queue for one. ValueError if the rule does not allow so many workers.
    """
    timing = clock or profile.clock(workers, shards)
    rule = rule or Async()
    local = local or NoLocalSteps()
    travels = profile.push_bytes, profile.pull_bytes
    if not isinstance(timing.server_s, Distribution) and not (cores is not None and cores < workers):
        shards = 1  # all serve each push at the same moment for as long
    if not (gradients or local.sums or local.peers or overlap or (cores is not None and cores < workers)):
        if local.steps:  # a push of so many gradients, as if they were one
            summed = replace(timing, gradient_s=sum_of(timing.gradient_s, local.every))
            point = play(profile, workers, rule, shards, summed, seed, cores, damping=damping)
            return replace(point, samples_per_s=local.every * point.samples_per_s)
        if workers == 1 and (alone := one_worker(profile.batch_size, rule, shards, timing, *travels)) is not None:
            return alone
        if workers > ENOUGH and not timing.stragglers:

            def fewer(count: int, gradients: int | None = None) -> Point:
                return play(profile, count, rule, shards, timing, seed, cores, gradients, damping=damping)

            if saturates(workers, rule, timing, *travels):
                point = fewer(ENOUGH) if rule == Async() else fewer(FEW, LONG * FEW)
                return stretched(point, workers, timing, *travels, profile.batch_size)
            if rule == Sync() and waits_in_queues(fewer(ENOUGH), timing):
                return lengthened(fewer(FEW), fewer(ENOUGH), workers, timing)
    counted = gradients or _enough(workers, rule, local)
    now = DeclaredBytes(timing, workers, shards, seed, *travels, peer_bytes=4 * PEER_NUMBERS)
    settings = Settings(rule, damping or NoDamping(), shards=shards, local=local, host="virtual", clock=timing)
    key = repr((profile.batch_size, travels, workers, settings, seed, cores, counted, overlap))
    if key in _KNOWN:
        return _KNOWN[key]
    run = SharedRun(workers, settings, now)
    watch = _Watch()
    watch.clock, watch.n_push = now, local.every
    queue = SharedCores(now, cores, mean_s(timing.server_s) * shards) if cores is not None and cores < workers else None
    begun = OverlappedGradients(now, queue) if overlap else queue

    def make(worker: int) -> list[Optimizer]:
        return [NullOptimizer(shards, PEER_NUMBERS if local.peers else 1)]

    try:
        players = SimulatedWorkers(
            run, now, make, EndlessWork(), gradient_s=begun.gradient_s if begun else None, watch=watch
        )
        watch.players = players
        players.begin_all()
        _step(players, _before(counted, workers, rule, local))
        before = _read(run, now, queue)
        watch.counts = True
        _step(players, counted)
        after = _read(run, now, queue)
        players.detach()
    finally:
        run.close()
    if len(_KNOWN) >= KEPT:
        _KNOWN.clear()
    _KNOWN[key] = _point(profile, workers, watch, before, after, watch.n_push)
    return _KNOWN[key]


def _enough(workers: int, rule: Rule, local: Communication) -> int:
    """Gradients after which updates/s are known within some 1 %."""
    some = MANY if rule.waits else min(MANY, max(LEAST, EACH * workers))
    many = LEAST if rule.synchronous else some
    always = ROUNDS if rule.synchronous else ALWAYS
    every = local.every if local.steps else 1
    return max(many * min(every, ALWAYS), always * workers * every)


def _before(counted: int, workers: int, rule: Rule, local: Communication) -> int:
    """Gradients that do not count, since all workers begin at the same moment; where they do so in each round, few."""
    some = int(WARM_UP * counted)
    return min(some, FIRST_ROUNDS * workers * local.every) if rule.synchronous else some


def _step(players: SimulatedWorkers, gradients: int) -> None:
    for _ in range(gradients):
        worker = players.next()
        assert worker is not None, "there is always another batch"
        players.push()


def _read(run: SharedRun, clock: DeclaredBytes, cores: SharedCores | None) -> _Reading:
    seconds = run.seconds()
    shards = len(clock.servers)
    server = sum(line.busy_s for line in clock.servers) / shards, sum(line.waited_s for line in clock.servers) / shards
    lines = [server, *((line.busy_s, line.waited_s) for line in clock.busiest())]
    pushes = [measures for measures in run.pushes() if measures.shard == 0]
    return _Reading(
        seconds.compute,
        seconds.wait,
        seconds.communicate,
        version=run.counts().updates,
        applied=sum(measures.applied for measures in pushes),
        dropped=sum(measures.dropped for measures in pushes),
        cores_waited_s=cores.waited_s if cores else 0.0,
        lines=lines,
        time_s=clock.now(),
    )


def _point(profile: Profile, workers: int, watch: _Watch, before: _Reading, after: _Reading, n_push: int) -> Point:
    assert watch.first is not None, "an update in every few gradients"
    (first_s, first), (last_s, last) = watch.first, watch.last
    rate = (last - first) / (last_s - first_s) if last_s > first_s else math.inf
    applied, dropped = after.applied - before.applied, after.dropped - before.dropped
    each = applied / max(1, after.version - before.version)  # gradients in an update
    queued = after.cores_waited_s - before.cores_waited_s
    compute = after.compute_s - before.compute_s - queued
    waited = after.wait_s - before.wait_s + queued
    communicate = after.communicate_s - before.communicate_s
    all_s = compute + waited + communicate or 1.0
    took_s = after.time_s - before.time_s or 1.0
    lines = [
        (min(1.0, (busy - busy0) / took_s), (busy - busy0 + wait - wait0) / took_s)
        for (busy, wait), (busy0, wait0) in zip(after.lines, before.lines, strict=True)
    ]
    return Point(
        workers,
        rate,
        rate * each * n_push * profile.batch_size,
        compute / all_s,
        communicate / all_s,
        waited / all_s,
        *_staleness(watch.stale),
        dropped / (applied + dropped) if applied + dropped else 0.0,
        *lines[0],
        *lines[1],
        *lines[2],
    )


def _staleness(seen: Counter[int]) -> tuple[float, int]:
    """Mean and 95th percentile; 0 where nothing was applied."""
    total, below = sum(seen.values()), 0
    for staleness in sorted(seen):
        below += seen[staleness]
        if below >= 0.95 * total:
            return sum(value * count for value, count in seen.items()) / total, staleness
    return 0.0, 0
