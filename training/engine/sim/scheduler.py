"""The order of events: the workers of a run, simulated in one process at virtual times.

A worker's life is a coroutine that yields a `Computes` wherever it needs a gradient. `Scheduler.next` runs all lives
until a gradient is due; the caller puts it in place and calls `go_on`. Nothing here is random, so the same lives and
seconds give the same order: at the same time, what was begun earlier comes first; what was begun at the same time goes
by worker number; deaths and returns come before either.
"""

import heapq
from collections.abc import Callable, Generator, Iterable
from typing import Final, NamedTuple

from scalebook.training.engine.rules.clock_settings import Death
from scalebook.training.engine.sim.sim_clock import SimulatedClock
from scalebook.training.engine.worker_clock import Until, Wait


class Computes(NamedTuple):
    """A worker may begin its next gradient, and has the version to compute it from."""


Life = Generator[Wait | Until | Computes, None, None]
_FIRST: Final = -1  # in the order of one moment


class Deadlock(TimeoutError):
    """Workers are left, none computes, and no event is planned."""


class _Entry(NamedTuple):
    """A planned event. The earliest comes first, then the smallest `number`, then the smallest worker.

    `life`: the number of the worker's life that it belongs to; None for a return.
    """

    at_s: float
    number: int
    worker: int
    kind: int
    life: int


_GOES_ON, _COMPUTED, _DIES, _RETURNS = range(4)


class Watch:
    """Hooks of a simulation. These do nothing."""

    def settling(self) -> bool:
        """Called at each moment, after all that follows from it; True if the hook has changed something (by
        `Scheduler.die`), so that the scheduler looks again."""
        return False

    def looked(self) -> None:
        """Workers were asked whether they can go on, or one has gone on: updates may have been made."""

    def begins(self, worker: int) -> None:
        """The worker's next gradient starts now."""

    def ends(self, worker: int) -> None:
        """The worker's life is over: it has finished."""

    def returns(self, worker: int) -> None:
        """The worker is back and about to join."""


class Scheduler:
    """Runs all workers of a run in one process, on a virtual clock.

    `gradient_s(worker)`: seconds of its next gradient. `changes()`: a counter that grows whenever something happens
    that a `Wait` may wait for; a worker that was not ready is asked again only when it has grown. `mark_dead(worker)`
    is called once for each death. `rejoin(worker)` gives a worker that returns its new life. `stops()`: called at each
    moment; it may make workers start again, and returns whether it has.
    """

    def __init__(
        self,
        clock: SimulatedClock,
        gradient_s: Callable[[int], float],
        changes: Callable[[], int],
        mark_dead: Callable[[int], None],
        rejoin: Callable[[int], Life],
        deaths: Iterable[Death] = (),
        watch: Watch | None = None,
        stops: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock, self._gradient_s, self._changes = clock, gradient_s, changes
        self._mark_dead, self._rejoin = mark_dead, rejoin
        self._watch, self._stops = watch or Watch(), stops
        self._agenda: list[_Entry] = []
        self._lives: dict[int, Life] = {}
        self._number: dict[int, int] = {}  # by worker, of its life: what an earlier one had planned is void
        self._waiting: dict[int, Wait] = {}
        self._asked: dict[int, int] = {}  # of those, when in vain: `changes` before that
        self._all_asked = -1  # as much for all of them: `changes` when each has been asked since
        self._ready: set[int] = set()
        self._computing: set[int] = set()
        self._dead: set[int] = set()
        self._later: dict[int, Callable[[], float]] = {}  # of those that go on at a time, which may then be later
        self._due: int | None = None  # whose gradient is awaited
        self._begun = 0
        for death in deaths:
            self._plan(death.at_s, _DIES, death.worker)
            if death.back_s is not None:
                self.plan_return(death.worker, death.back_s)

    @property
    def has_begun(self) -> bool:
        """Whether any worker has had a life."""
        return bool(self._number)

    def live(self, worker: int, life: Life) -> None:
        """Begin a worker's life, and run it to its first wait."""
        self._lives[worker] = life
        self._number[worker] = self._number.get(worker, 0) + 1
        self._play(worker)

    def next(self) -> int | None:
        """Advance the time until a gradient is due; returns its worker, None when all have finished or are dead for
        good.

        `Deadlock` if the remaining workers wait forever.
        """
        entry = self._advance()
        if entry is None:
            return None
        heapq.heappop(self._agenda)
        self._clock.time_s = max(self._clock.time_s, entry.at_s)
        self._due = entry.worker
        self._computing.discard(entry.worker)
        return entry.worker

    def advance(self) -> None:
        """Advance the time as far as possible before the next gradient is due, so that transfers arrive. Raises as
        `next`."""
        self._advance()

    def _advance(self) -> "_Entry | None":
        """The entry of the gradient that is due next, first of the agenda; None when no worker will compute any
        more."""
        assert self._due is None, f"worker {self._due} has computed and must continue first"
        while True:
            self._settle()
            if not self._agenda:
                if self._waiting:
                    raise Deadlock(self._stuck())
                return None
            self._puts_off()
            entry = self._agenda[0]
            if entry.kind in (_GOES_ON, _COMPUTED) and entry.life != self._number_of(entry.worker):
                heapq.heappop(self._agenda)  # it has died meanwhile
            elif entry.kind == _DIES and entry.worker not in self._lives:
                heapq.heappop(self._agenda)  # it has finished
            elif entry.kind == _COMPUTED:
                return entry
            else:
                heapq.heappop(self._agenda)
                self._clock.time_s = max(self._clock.time_s, entry.at_s)
                self._happens(entry)

    def _puts_off(self) -> None:
        """Postpone all entries at the head of the agenda whose worker goes on later than planned."""
        agenda, clock, those = self._agenda, self._clock, self._later
        while those:
            at_s, _, worker, kind, life = agenda[0]
            if kind != _GOES_ON or worker not in those or life != self._number[worker]:
                return
            if at_s > clock.time_s:
                clock.time_s = at_s
            later_s = those[worker]()
            if later_s <= clock.time_s:
                del those[worker]
                return
            heapq.heapreplace(agenda, _Entry(later_s, self._begun, worker, kind, life))
            self._begun += 1

    def _happens(self, entry: "_Entry") -> None:
        if entry.kind == _GOES_ON:
            self._play(entry.worker)
        elif entry.kind == _DIES:
            self.die(entry.worker)
        elif entry.worker in self._dead:
            self._dead.remove(entry.worker)
            self._watch.returns(entry.worker)
            self.live(entry.worker, self._rejoin(entry.worker))

    def go_on(self) -> None:
        """The due gradient is in place: run its worker to its next wait."""
        assert self._due is not None, "nobody has computed"
        worker, self._due = self._due, None
        self._play(worker)

    def give_up(self, ends: Callable[[int], Life]) -> None:
        """Stop all computing: a worker that computes, or was about to, gets the life `ends(worker)` instead. Deaths and
        returns stop too; workers that wait or travel go on."""
        computing = [entry for entry in self._agenda if entry.kind in (_GOES_ON, _COMPUTED)]
        self._agenda = computing
        heapq.heapify(self._agenda)
        waiting = self._computing | self._ready | ({self._due} if self._due is not None else set())
        self._computing, self._ready, self._due = set(), set(), None
        for worker in sorted(waiting):
            self._lives[worker].close()
            self.live(worker, ends(worker))

    def computes(self, worker: int) -> bool:
        """Whether its gradient is under way and not yet due."""
        return worker in self._computing

    def begin_anew(self, worker: int, life: Life) -> float:
        """Abandon the gradient that it computes, and give it this life instead; returns the seconds that were left."""
        assert worker in self._computing, f"worker {worker} computes nothing"
        due = next(e for e in self._agenda if (e.kind, e.worker, e.life) == (_COMPUTED, worker, self._number[worker]))
        self._computing.discard(worker)
        self._lives[worker].close()
        self.live(worker, life)
        return due.at_s - self._clock.time_s

    def die(self, worker: int) -> bool:
        """End a life at this moment; False, with no effect, for a worker that has finished or is dead."""
        if worker not in self._lives:
            return False
        self._lives.pop(worker).close()
        self._waiting.pop(worker, None)
        self._later.pop(worker, None)
        self._asked.pop(worker, None)
        self._ready.discard(worker)
        self._computing.discard(worker)
        self._dead.add(worker)
        self._mark_dead(worker)
        return True

    def plan_return(self, worker: int, at_s: float) -> None:
        """Plan the worker's return at this time."""
        self._plan(at_s, _RETURNS, worker)

    # --- the moment ------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Run all that follows from what has happened: which workers go on, which begin."""
        self._has_changed()
        while True:
            self._wake()
            for worker in sorted(self._ready):
                self._begin(worker)
            if not self._has_changed():
                return

    def _has_changed(self) -> bool:
        changed = self._watch.settling()
        return self._stops() or changed

    def _wake(self) -> None:
        """Run the waiting workers that are ready, in order, until none is."""
        while self._waiting:
            changes = self._changes()
            ready = []
            if changes != self._all_asked:
                checked_at, changes_now = self._asked, self._changes
                ready = [
                    one for one in sorted(self._waiting) if checked_at.get(one) != changes_now() and self._is_ready(one)
                ]
            if not ready and changes == self._changes():
                self._all_asked = changes
            self._watch.looked()
            for worker in ready:
                del self._waiting[worker]
                self._play(worker)
                self._watch.looked()
            if not ready:
                return

    def _is_ready(self, worker: int) -> bool:
        changes = self._changes()
        if self._waiting[worker].ready():
            self._asked.pop(worker, None)
            return True
        self._asked[worker] = changes
        return False

    def _begin(self, worker: int) -> None:
        self._ready.discard(worker)
        self._computing.add(worker)
        self._plan(self._clock.time_s + self._gradient_s(worker), _COMPUTED, worker)
        self._watch.begins(worker)

    def _play(self, worker: int) -> None:
        try:
            wait = next(self._lives[worker])
        except StopIteration:
            del self._lives[worker]
            self._watch.ends(worker)
            return
        if isinstance(wait, Wait):
            self._waiting[worker], self._all_asked = wait, -1
        elif isinstance(wait, Until):
            self._plan(wait.at_s, _GOES_ON, worker)
            if wait.later is not None:
                self._later[worker] = wait.later
        else:
            self._ready.add(worker)

    def _plan(self, at_s: float, kind: int, worker: int) -> None:
        number = _FIRST
        if kind in (_GOES_ON, _COMPUTED):
            number, self._begun = self._begun, self._begun + 1
        heapq.heappush(self._agenda, _Entry(at_s, number, worker, kind, self._number_of(worker)))

    def _number_of(self, worker: int) -> int:
        """The number of its present life; 0: it has none."""
        return self._number[worker] if worker in self._lives else 0

    def _stuck(self) -> str:
        waiting = sorted(self._waiting)
        waits = "; ".join(self._waiting[worker].awaited() for worker in waiting[:3])
        return (
            f"nothing more can happen after {self._clock.time_s:g} s, but workers {waiting} are still waiting: {waits}"
        )
