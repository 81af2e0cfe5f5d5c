"""Admission to one optimizer's shards: which worker may begin its next gradient, and which gradient is admitted.

Applies the pure rules (`rules/update_rules.py`) to the counters that all processes share. Each question is answered
under the admission lock; a worker that must wait sleeps on the run's event and asks again when something has happened.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from scalebook.training.engine.coordination.membership import enter, leave
from scalebook.training.engine.memory.lock import HeldLock
from scalebook.training.engine.memory.region import ARRIVALS, DROPPED, MEETING, METER, RESTING, STOPPING, Control
from scalebook.training.engine.rules.update_rules import Arrival, View
from scalebook.training.engine.worker_clock import Wait, Waits

_GATHERED: Final = (1 << 31) - 1
_CLOSED: Final = 1 << 31


class Round(NamedTuple):
    """Updates made; whether the round after them is complete and being applied; how many gradients it has."""

    version: int
    closed: bool
    gathered: int


class Verdict(Enum):
    """What happens with a gradient: admitted, dropped by rule or damping, or the budget is used up."""

    ADMIT = "admit"
    DROP = "drop"
    END = "end"


class Admission:
    """Decides for one optimizer; each process has an object of its own. `number`: the optimizer's number.
    `deadline_s`: of each wait, in seconds."""

    def __init__(self, control: Control, number: int, deadline_s: float) -> None:
        self.control, self.counters = control, control.partition_counters[number]
        settings = control.settings
        self.rule, self._damping = settings.rule, settings.damping
        self._warmup, self._budget, self._deadline_s = settings.warmup_updates, settings.max_updates, deadline_s
        self._ends_at_once = self.rule.synchronous and not settings.pushes_rarely
        self._used_counters = [counters for counters in control.partition_counters if counters.used[0]]
        self._held = HeldLock(control.admission_lock, deadline_s)
        self.may_wait = self.rule.waits or self._warmup > 0
        self.must_ask = self._budget is not None or settings.applies_one_at_a_time
        """Whether a rule that applies on arrival can drop or end anything."""

    # --- state ---------------------------------------------------------------------------------------------------

    def locked(self) -> HeldLock:
        """Hold the run's admission lock. A decision that a killed process did not store does not count."""
        return self._held

    def round(self) -> Round:
        """The round being gathered; only for rules that gather."""
        packed = self.counters.admission[0]
        return Round(packed >> 32, bool(packed & _CLOSED), packed & _GATHERED)

    def set_round(self, version: int, closed: bool, gathered: int) -> None:
        """Store the state of the round in one write; under the admission lock."""
        self.counters.admission[0] = version << 32 | (_CLOSED if closed else 0) | gathered

    def version(self) -> int:
        """Updates made so far: rounds applied, or the version of shard 0 under a rule that applies on arrival."""
        return self.round().version if self.rule.gathers else self.counters.shards[0].newest[0] >> 17

    def view(self) -> View:
        """What the rule sees; under the admission lock."""
        values = self.counters.clocks.tolist()
        active = self.control.active()
        if len(active) == len(values) and min(values) >= 0:  # all of them, as nearly always
            clocks = dict(enumerate(values))
        else:
            clocks = {worker: values[worker] for worker in active if values[worker] >= 0}
        if not self.rule.gathers:
            return View(self.version(), 0, frozenset(), clocks)
        now = self.round()
        owner = self.counters.owner.tolist()
        contributed = frozenset([owner[slot] for slot in self.counters.order[: now.gathered].tolist()])
        return View(now.version, now.gathered, contributed, clocks)

    # --- beginning -----------------------------------------------------------------------------------------------

    def await_turn(self, worker: int) -> Waits[None]:
        """Wait until the rule lets `worker` begin its next gradient, or the budget is used up.

        TimeoutError when nothing happens for the deadline.
        """
        if self.may_wait or self.counters.clocks[worker] < 0:
            what = f"worker {worker} waits for rule {self.rule.name} to let it begin"
            yield Wait(lambda: self.has_turn(worker), self._deadline_s, lambda: what)

    def has_turn(self, worker: int) -> bool:
        """Whether `worker` may begin now; admits it to the run when the warm-up is over."""
        with self.locked():
            if self.is_over():
                return True
            if self.counters.clocks[worker] < 0 and not self._let_in(worker):
                return False
            if not self.rule.waits:
                return True
            if self.rule.gathers and self.round().closed:
                return False  # it would pull some shards before and some after the update
            view = self._turns()
            return worker not in view.clocks or self.rule.may_begin(worker, view)  # who rests has no turn to wait for

    def _turns(self) -> View:
        """The view that decides who may begin; under the admission lock."""
        return self.view()

    def _let_in(self, worker: int) -> bool:
        """Admit to the run: during the warm-up only the first living worker; then all who have come, with the slowest
        clock.

        All at once, since a rule that waits for everybody must not take the first worker to ask for everybody.
        """
        clocks, active = self.view().clocks, self.control.active()
        come = [worker]
        if self.version() < self._warmup:
            if clocks or worker != min(active, default=worker):
                return False
        else:
            come = [w for w in active if self.control.counter(w, ARRIVALS) and self.counters.clocks[w] < 0]
        for other in come:
            self.counters.clocks[other] = min(clocks.values(), default=0)
        return True

    def tick(self, worker: int) -> None:
        """A push of `worker` is complete, applied or dropped."""
        self.counters.clocks[worker] += 1
        if self.may_wait:  # so processes know that something happens, also where nobody's turn follows from it
            self.control.event.wake()

    # --- admitting -----------------------------------------------------------------------------------------------

    def judge(self, worker: int, seq: int, staleness: int) -> Verdict:
        """The verdict under a rule that applies on arrival; under the admission lock. Counts drops.

        `staleness`: of the stalest shard, in versions.
        """
        if self.is_over():
            return Verdict.END
        if not self._is_accepted(worker, staleness):
            return Verdict.DROP
        self.counters.last_admitted[worker] = seq
        self.counters.admitted[worker] += 1
        return Verdict.ADMIT

    def takes(self, worker: int, base_version: int) -> Verdict:
        """The verdict under a rule that gathers, while no round is closed; under the admission lock. Counts drops."""
        if self.is_over():
            return Verdict.END
        return Verdict.ADMIT if self._is_accepted(worker, self.version() - base_version) else Verdict.DROP

    def _is_accepted(self, worker: int, staleness: int) -> bool:
        """Whether rule and damping accept a gradient. Counts drops."""
        accepted = self._damping.accepts(staleness)
        if accepted and self.rule.refuses:
            view = self.view()
            accepted = self.rule.accepts(Arrival(worker, view.version - staleness, view.version), view)
        if not accepted:
            self.counters.shards[0].meters[worker * METER + DROPPED] += 1
        return accepted

    @property
    def is_stopped(self) -> bool:
        """Whether gradients outside a complete round are dropped: a worker was asked to stop, and under this rule all
        workers make the same updates."""
        return self._ends_at_once and bool(self.control.head[STOPPING])

    def has_dropped(self, base: int) -> bool:
        """Whether the round of a push from version `base`, whose turn has come, was never completed, since a worker was
        asked to stop."""
        return self.is_stopped and self.version() <= base

    def is_over(self) -> bool:
        """Whether no more updates are made: the budget over all optimizers is used up, or `is_stopped`."""
        if self.is_stopped and not self.round().closed:
            return True
        if self._budget is None:
            return False
        if self.rule.gathers:
            return sum(counters.admission[0] >> 32 for counters in self._used_counters) >= self._budget
        return sum(counters.admission[1] + sum(counters.admitted) for counters in self._used_counters) >= self._budget


def let_in_again(control: Control, workers: Sequence[int], deadline_s: float) -> None:
    """Count again on workers that waited in an exchange, with the clock of the slowest of the others."""
    with HeldLock(control.admission_lock, deadline_s):
        others = [worker for worker in control.active() if worker not in workers]
        for counters in control.partition_counters:
            clocks = counters.clocks
            most = max((clocks[worker] for worker in workers), default=0)
            least = min((clocks[worker] for worker in others if clocks[worker] >= 0), default=most)
            for worker in workers:
                if clocks[worker] >= 0:
                    clocks[worker] = max(clocks[worker], least)
        for worker in workers:
            control.set_counter(worker, RESTING, control.counter(worker, RESTING) & ~MEETING)
    for worker in workers:
        enter(control, worker, deadline_s)


def mark_dead(control: Control, worker: int) -> None:
    """Undo what a dead worker has begun and not finished: versions held, slots, admissions. Called by the monitor."""
    for counters in control.partition_counters:
        counters.writing[worker] = -1
        applied = [s.applied[(s.newest[0] & 0xFFFF) * control.workers + worker] for s in counters.shards]
        handed_in = [shard.pushed[worker] for shard in counters.shards]
        if counters.last_admitted[worker] > max(*applied, *handed_in):
            counters.admitted[worker] -= 1
            counters.last_admitted[worker] = max(applied)
        counters.clocks[worker] = -1
        for shard, done in zip(counters.shards, applied, strict=True):
            if shard.pushed[worker] <= done:  # else its server still needs what the gradient was computed from
                shard.held[worker] = shard.bases[worker] = -1
    leave(control, worker)
    control.event.wake()
