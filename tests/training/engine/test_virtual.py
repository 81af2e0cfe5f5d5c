"""The engine on a virtual clock: golden traces, properties, and distributions that the papers state."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from scalebook.training.engine.rules.damping import Damping, DropAbove, Inverse, NoDamping
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync, View
from scalebook.training.engine.sim import Deadlock
from tests.examples import examples
from tests.training.engine.scenarios import NAMES, golden, play
from tests.training.engine.virtual import Fate, Speed, VirtualRun, constant, exponential, steady

pytestmark = pytest.mark.long

# --- golden traces -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_golden_trace(name: str) -> None:
    assert play(name) == golden(name)


# --- properties ----------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """What hypothesis varies; `run` plays it."""

    rule: Rule
    damping: Damping
    speeds: Sequence[Speed]
    pushes: int
    warmup_updates: int
    fates: list[Fate]
    seed: int

    def run(self) -> tuple[VirtualRun, list[View]]:
        views: list[View] = []
        run = VirtualRun(
            self.rule,
            self.speeds,
            self.pushes,
            self.damping,
            self.warmup_updates,
            self.fates,
            self.seed,
            watch=views.append,
        )
        return run.run(), views


def speeds(workers: int) -> st.SearchStrategy[list[Speed]]:
    seconds = st.sampled_from([0.5, 1.0, 1.3, 2.0, 7.0])
    one = st.one_of(
        seconds.map(constant), seconds.map(exponential), st.tuples(seconds, st.just(0.3)).map(lambda s: steady(*s))
    )
    return st.lists(one, min_size=workers, max_size=workers)


@st.composite
def cases(draw: st.DrawFn, rule: st.SearchStrategy[Rule] | None = None, mortal: bool = True) -> Case:
    workers = draw(st.integers(1, 6))
    any_rule = st.one_of(
        st.just(Async()),
        st.integers(1, 5).map(Bounded),
        st.integers(0, workers - 1).map(Sync),
        st.integers(1, 8).map(Softsync),
    )
    law = draw(any_rule if rule is None else rule)
    fate = st.builds(
        Fate, st.integers(0, workers - 1), st.integers(0, 60), st.none() | st.sampled_from([0.0, 0.7, 3.0, 40.0])
    )
    return Case(
        law,
        draw(st.one_of(st.just(NoDamping()), st.just(Inverse()), st.integers(0, 4).map(DropAbove))),
        draw(speeds(workers)),
        draw(st.integers(1, 12)),
        draw(st.integers(0, 6)),
        draw(st.lists(fate, max_size=6)) if mortal else [],
        draw(st.integers(0, 2**16)),
    )


often = examples(100, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@often
@given(cases())
def test_every_gradient_is_applied_once_or_dropped_and_nothing_else(case: Case) -> None:
    run, _ = case.run()  # raises Deadlock when somebody is left who can do nothing
    applied = [gradient.number for update in run.updates for gradient in update.gradients]
    dropped = [gradient.number for gradient in run.dropped]
    assert sorted(applied + dropped) == sorted(gradient.number for gradient in run.pushed)
    assert len(set(applied + dropped)) == len(run.pushed)
    assert [update.version for update in run.updates] == list(range(run.version))
    assert Counter(event.what for event in run.trace)["is dropped"] == len(dropped)
    by_worker = Counter(gradient.worker for gradient in run.pushed)
    assert all(by_worker[worker] == case.pushes for worker in run.living)
    assert all(staleness >= 0 for update in run.updates for staleness in update.stalenesses)


@often
@given(cases(rule=st.integers(1, 5).map(Bounded)))
def test_bounded_holds_at_every_event(case: Case) -> None:
    assert isinstance(case.rule, Bounded)
    _, views = case.run()
    spread = [max(view.clocks.values()) - min(view.clocks.values()) for view in views if view.clocks]
    assert max(spread, default=0) <= case.rule.bound


@often
@given(cases(mortal=False), st.integers(0, 3))
def test_sync_averages_exactly_n_gradients_of_the_present_version(case: Case, backup_workers: int) -> None:
    workers = len(case.speeds)
    case.rule = Sync(min(backup_workers, workers - 1))
    run, views = case.run()
    wanted = workers - case.rule.backup_workers
    assert all(staleness == 0 for update in run.updates for staleness in update.stalenesses)
    all_there = {view.version for view in views if len(view.clocks) == workers}
    full = [
        len(update.gradients) for update in run.updates if update.version in all_there - {max(all_there, default=0)}
    ]
    assert full == [wanted] * len(full)
    assert all(
        len({gradient.worker for gradient in update.gradients}) == len(update.gradients) for update in run.updates
    )
    if case.rule.backup_workers == 0:
        assert not run.dropped


@often
@given(cases(rule=st.integers(1, 8).map(Softsync)))
def test_softsync_averages_exactly_so_many_except_in_the_last_round(case: Case) -> None:
    assert isinstance(case.rule, Softsync)
    run, views = case.run()
    ends = {view.version for view in views if not view.clocks}  # moments when nobody could give more
    for update in run.updates:
        assert len(update.gradients) <= case.rule.average
        assert len(update.gradients) == case.rule.average or update.version in ends


@often
@given(cases(), st.integers(0, 5))
def test_drop_above_applies_nothing_staler_and_drops_nothing_fresher(case: Case, limit: int) -> None:
    case.damping = DropAbove(limit)
    run, _ = case.run()
    assert max((max(update.stalenesses) for update in run.updates), default=0) <= limit
    if not isinstance(case.rule, Sync):
        stale = [event.staleness for event in run.trace if event.what == "is dropped"]
        assert min(stale, default=limit + 1) > limit


@often
@given(cases())
def test_inverse_gives_each_update_its_own_rate(case: Case) -> None:
    case.damping = Inverse()
    run, _ = case.run()
    for update in run.updates:
        assert update.rate == 1 / max(1, sum(update.stalenesses) / len(update.stalenesses))


@often
@given(cases(mortal=False))
def test_only_worker_0_computes_during_the_warm_up(case: Case) -> None:
    case.damping = NoDamping()
    run, _ = case.run()
    early = [event.worker for event in run.trace if event.what == "begins" and event.version < case.warmup_updates]
    assert set(early[: case.pushes]) <= {0}  # it may finish before the warm-up is over; then the next one goes on


@often
@given(st.sampled_from([Async(), Bounded(1), Sync(), Softsync(1)]), st.integers(1, 12), st.integers(0, 6))
def test_one_worker_is_plain_sgd_by_every_rule(rule: Rule, pushes: int, warmup_updates: int) -> None:
    run = VirtualRun(rule, [exponential(1.0)], pushes, warmup_updates=warmup_updates).run()
    assert [(update.stalenesses, len(update.gradients)) for update in run.updates] == [([0], 1)] * pushes
    assert not run.dropped


def test_a_rule_that_nobody_can_begin_under_is_caught() -> None:
    class Never(Bounded):
        def may_begin(self, worker: int, view: View) -> bool:
            return view.version == 0

    with pytest.raises(
        Deadlock,
        match=r"workers \[0, 1\] are still waiting: worker 0 waits for rule Never to let it begin; worker 1 waits",
    ):
        VirtualRun(Never(), [constant(1.0)] * 2, pushes=3).run()


# --- what the papers state ------------------------------------------------------------------------------------------


def arrivals(rule: Rule, speeds: Sequence[Speed], pushes: int) -> list[int]:
    """Stalenesses of a run, without its beginning and end."""
    run = VirtualRun(rule, speeds, pushes, seed=11).run()
    cut = run.version // 10
    return [staleness for update in run.updates[cut:-cut] for staleness in update.stalenesses]


@pytest.mark.sampled
@pytest.mark.parametrize("n", [1, 2, 5, 15, 30])
def test_softsync_has_the_stalenesses_of_zhang_2016(n: int) -> None:
    # section 2.4 and figure 1: 30 learners; the mean is about n, P(staleness > 2n) < 1e-4; n = 1: only 0, 1 and 2
    seen = arrivals(Softsync(30 // n), [steady(1.0, 0.1)] * 30, pushes=200)
    assert len(seen) > 4_500
    assert sum(seen) / len(seen) == pytest.approx(n * 29 / 30, rel=0.02)
    assert sum(staleness > 2 * n for staleness in seen) <= len(seen) * 1e-4
    assert n > 1 or set(seen) <= {0, 1, 2}


@pytest.mark.thorough
@pytest.mark.sampled
@pytest.mark.parametrize("workers", [2, 4, 8])
def test_memoryless_workers_have_geometric_staleness(workers: int) -> None:
    # Whoever pushes next is anyone with probability 1/N, so P(k others before me) = (1 - 1/N)^k / N, mean N - 1
    seen = arrivals(Async(), [exponential(1.0)] * workers, pushes=20_000 // workers)
    assert sum(seen) / len(seen) == pytest.approx(workers - 1, rel=0.03)
    for staleness in range(4):
        share = sum(one == staleness for one in seen) / len(seen)
        assert share == pytest.approx((1 - 1 / workers) ** staleness / workers, abs=0.01)


def test_equal_workers_have_a_constant_staleness() -> None:
    assert set(arrivals(Async(), [constant(1.0)] * 5, pushes=50)) == {4}


def test_a_straggler_stops_sync_but_not_sync_with_a_backup() -> None:
    speeds = [constant(1.0)] * 3 + [constant(2.0)]
    ends = {}
    for rule in (Async(), Bounded(2), Sync(), Sync(1)):
        run = VirtualRun(rule, speeds, pushes=100).run()
        done = ("pushes", "is dropped")
        ends[rule] = max(event.time_s for event in run.trace if event.what in done and event.worker == 0)
    assert ends == {Async(): 100.0, Bounded(2): pytest.approx(197, abs=2), Sync(): 199.0, Sync(1): 100.0}


# --- the engine under a clock of somebody else's ---------------------------------------------------------------------


def test_the_same_run_gives_the_same_weights_and_measures() -> None:
    first, second = (
        VirtualRun(Bounded(2), [exponential(1.0)] * 4, 20, Inverse(), 3, [Fate(2, 30, 2.0)], seed=3).run()
        for _ in range(2)
    )
    assert (first.trace, first.weight, first.times) == (second.trace, second.weight, second.times)
    assert first.weight == pytest.approx(-sum(update.rate for update in first.updates), rel=1e-6)  # every gradient is 1
    assert sum(row.applied for row in first.measures) == first.version


def test_seconds_are_those_of_the_clock() -> None:
    run = VirtualRun(Sync(), [constant(1.0), constant(1.0), constant(3.0)], pushes=10).run()
    assert [one.wait for one in run.times] == [20.0, 20.0, 0.0]
    assert [one.communicate for one in run.times] == [0.0] * 3
    assert [row.age_s for row in run.measures] == [3.0] * 3  # from a gradient's pull to its round's update


def test_who_waits_on_a_virtual_clock_is_played_step_by_step() -> None:
    """Sixty-four workers in this process take turns, and none is in another's way."""
    run = VirtualRun(Bounded(1), [constant(1.0 + worker / 64) for worker in range(64)], pushes=3).run()
    assert run.version == 64 * 3
    pushed = [event.time_s for event in run.trace if event.what == "pushes"]
    assert pushed[64:128] == pytest.approx([1 + 63 / 64 + 1 + worker / 64 for worker in range(64)], abs=1e-6)
