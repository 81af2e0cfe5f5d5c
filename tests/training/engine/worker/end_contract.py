"""What a worker's end does, whatever carries it: a subclass says how a run of so many workers comes about.

Everything is driven from one process, so that a test says who does what when; what blocks until others come is called
in threads.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch.nn import Parameter

from scalebook.training.engine.launch import Launch
from scalebook.training.engine.rules.damping import DropAbove, Inverse
from scalebook.training.engine.rules.local_steps import Downpour
from scalebook.training.engine.rules.settings import Deal, Settings
from scalebook.training.engine.rules.update_rules import Bounded, Sync
from scalebook.training.engine.worker.worker_end import (
    MemoryNeed,
    Phase,
    PlateauStep,
    PushResult,
    TakenBatch,
    WorkerEnd,
    WrittenError,
)
from tests.training.engine.custom_optimizers import CountsInGroups
from tests.training.engine.worker.peers import DEADLINE_S, Make, Peer, adam, counting, together

EndOf = Callable[[int, float], WorkerEnd]
"""The end of a worker, by its number and the deadline of its waits (s)."""


class EndContract(ABC):
    """`launched` is all that an implementation must bring."""

    @abstractmethod
    def launched(self, launch: Launch, make: Make) -> AbstractContextManager[EndOf]:
        """While the block lasts: `EndOf`. `make`: the optimizers of what serves."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Settings that make a run of this kind."""

    @contextmanager
    def run(
        self, workers: int, make: Make = counting, deadline_s: float = DEADLINE_S, **settings: Any
    ) -> Iterator[tuple[Launch, list[Peer]]]:
        """A run in which all have joined and begun."""
        launch = Launch(workers, Settings(**{**self.settings, **settings}))
        with self.launched(launch, make) as end_of:
            ends = [end_of(worker, deadline_s) for worker in range(workers)]
            peers = together(*[lambda end=end: self.joined(end, make) for end in ends])
            together(*[peer.joined.start for peer in peers])
            for peer in peers:
                peer.joined.begin()
            yield launch, peers
            for peer in peers:
                peer.joined.finish()
            for peer in peers:
                peer.joined.detach()
        launch.close()

    @staticmethod
    def joined(end: WorkerEnd, make: Make) -> Peer:
        parameters = [Parameter(torch.zeros(3)), Parameter(torch.zeros(2, 2))]
        return Peer(end, end.join([make(parameters)]), parameters)

    # --- pushing and pulling ---------------------------------------------------------------------------------------

    def test_a_push_is_an_update_that_others_see_when_they_pull(self) -> None:
        with self.run(2) as (launch, (first, second)):
            assert (first.end.worker, second.end.worker, second.end.workers) == (0, 1, 2)
            assert first.push() == PushResult(version=1, applied=True, staleness=0, is_last=False)
            assert (first.values(), second.values(), second.joined.versions) == ({-1.0}, {0.0}, [0])
            second.joined.pull()
            assert (second.values(), second.joined.versions) == ({-1.0}, [1])
            first.push()
            assert second.push().staleness == 1
            assert second.values() == {-3.0}
            assert launch.figures.counts().updates == 3

    def test_the_learning_rate_is_that_of_the_pushing_worker_s_groups(self) -> None:
        with self.run(2) as (_, (first, second)):
            second.joined.clients[0].optimizer.param_groups[0]["lr"] = 0.25
            first.push()
            second.push()
            assert second.values() == {-1.25}
            assert [group["lr"] for group in second.joined.clients[0].groups()] == [0.25]
            assert second.joined.clients[0].groups()[0]["params"] == [0, 1]

    def test_a_push_without_a_gradient_changes_nothing(self) -> None:
        with self.run(1) as (_, (only,)):
            pushed = only.push(valid=False)
            assert (pushed.applied, pushed.version, only.values()) == (False, 0, {0.0})

    def test_what_is_left_of_a_sum_is_pushed_at_the_end(self) -> None:
        with self.run(1, local=Downpour(3, 1)) as (launch, (only,)):
            for _ in range(4):
                only.push()
            assert launch.figures.counts().updates == 1
            assert only.joined.push_rest()
            assert (launch.figures.counts().updates, only.values()) == (2, {-4.0})

    def test_a_dropped_push_is_said_to_be_one_and_counted(self) -> None:
        with self.run(2, damping=DropAbove(0)) as (launch, (first, second)):
            first.push()
            assert second.push() == PushResult(version=1, applied=False, staleness=1, is_last=False)
            assert [(row.applied, row.dropped) for row in launch.figures.pushes() if row.shard == 0] == [(1, 0), (0, 1)]

    def test_the_last_push_of_a_budget_says_so_and_the_run_is_over(self) -> None:
        with self.run(2, max_updates=2) as (launch, (first, second)):
            assert not first.push().is_last
            assert not first.end.is_over()
            assert second.push() == PushResult(version=2, applied=True, staleness=1, is_last=True)
            assert first.end.is_over()
            assert not first.push().applied
            assert launch.figures.counts().updates == 2

    def test_a_round_waits_for_all_that_neither_rest_nor_have_finished(self) -> None:
        with self.run(3, rule=Sync()) as (launch, (first, second, third)):
            third.joined.rest()
            pushed = together(first.push, second.push)
            assert [one.version for one in pushed] == [1, 1]
            second.joined.finish()
            assert first.push().version == 2
            together(third.joined.begin)
            assert third.values() == {-2.0}
            together(first.push, third.push)
            assert launch.figures.counts().updates == 3

    def test_who_waits_in_vain_is_told_at_the_deadline(self) -> None:
        with self.run(2, rule=Bounded(1), deadline_s=0.5) as (_, (first, second)):
            with pytest.raises(TimeoutError, match=r"worker 0 waits for rule bounded .*: nothing happened for 0.5 s"):
                first.push()
            second.joined.finish()

    # --- one push under way while the next gradient is computed ---

    def test_with_overlap_each_push_is_an_update_of_the_staleness_that_it_has(self) -> None:
        with self.run(1, host="overlap", shards=1, damping=Inverse()) as (launch, (only,)):
            versions = [only.push().version for _ in range(12)]
            only.joined.finish()
            only.joined.wait_for_others()
            only.joined.pull()
            assert versions == sorted(versions)
            assert launch.figures.counts().updates == 12
            counts = launch.figures.staleness().counts[0].tolist()
            assert sum(counts) == sum(counts[:3]) == 12  # what was under way, and what a server had not applied
            expected = -sum(count / max(1, late) for late, count in enumerate(counts))
            assert [*only.values()] == [pytest.approx(expected)]

    def test_with_overlap_what_is_done_is_so_when_its_push_has_come(self) -> None:
        with self.run(2, host="overlap", shards=2) as (_, (first, second)):
            mine = first.end.cursor
            for worker, one in enumerate((first, second)):
                one.end.cursor.enter_epoch(worker, 0, 8, Deal.IN_TURNS)
            for _ in range(3):
                assert mine.take_batch(0) is not None
                first.push()
                mine.mark_done(0)
            assert mine.state() == {0: [(1, 2), (3, 4), (5, 8)]}
            assert first.push().applied
            snapshot = first.joined.snapshot()
            assert 3 <= snapshot.versions[0] <= 4  # the last may be with the servers
            assert second.push().applied
            second.joined.check_foreign_writes("between two pulls")

    def test_with_overlap_a_budget_of_updates_is_kept(self) -> None:
        with self.run(2, host="overlap", max_updates=5) as (launch, (first, second)):
            for one in (first, second):
                for _ in range(4):
                    last = one.push()
            assert last.is_last
            assert not last.applied
            first.joined.finish()
            second.joined.finish()
            first.joined.wait_for_others()
            assert launch.figures.counts().updates == 5

    # --- what is written into parameters ---------------------------------------------------------------------------

    def test_what_was_loaded_before_the_start_is_the_first_version(self) -> None:
        launch = Launch(2, Settings(**self.settings))
        with self.launched(launch, counting) as end_of:
            peers = together(*[lambda w=w: self.joined(end_of(w, DEADLINE_S), counting) for w in range(2)])
            for peer in peers:
                for parameter in peer.parameters:
                    parameter.data.fill_(7.0)
            together(*[peer.joined.start for peer in peers])
            for peer in peers:
                peer.joined.begin()
                assert peer.values() == {7.0}
            for peer in peers:
                peer.joined.finish()
        launch.close()

    def test_one_of_several_that_writes_is_refused_and_its_parameter_named(self) -> None:
        with self.run(2) as (_, (first, second)):
            first.joined.name_parameters([("head.bias", first.parameters[1])])
            first.parameters[1].data = torch.full((2, 2), 9.0)
            with pytest.raises(WrittenError, match=r"worker 0 wrote into head.bias after lunch"):
                first.joined.check_foreign_writes("after lunch")
            second.push()
            assert second.values() == {-1.0}

    # --- whole states ----------------------------------------------------------------------------------------------

    def test_a_snapshot_is_of_one_moment_and_goes_on_in_another_run(self) -> None:
        with self.run(2, make=adam) as (_, (first, second)):
            first.push(), second.push()
            snapshot = first.joined.snapshot()
            weights = [parameter.detach().clone() for parameter in first.parameters]
            second.push()
            assert snapshot.versions == [2]
            assert [parameter.tolist() for parameter in first.parameters] == [one.tolist() for one in weights]
            first.joined.pull()
            last = [parameter.detach().clone() for parameter in first.parameters]
        launch = Launch(1, Settings(**self.settings))
        with self.launched(launch, adam) as end_of:
            only = self.joined(end_of(0, DEADLINE_S), adam)
            only.joined.restore(snapshot.versions, snapshot.optimizers)
            for parameter, weight in zip(only.parameters, weights, strict=True):
                parameter.data.copy_(weight)
            only.joined.start()
            only.joined.begin()
            assert only.push().version == 3
            assert all(torch.equal(a.detach(), b) for a, b in zip(only.parameters, last, strict=True))
            shown = only.joined.clients[0].optimizer.state[only.parameters[0]]
            assert int(shown["step"]) == 3
            only.joined.finish()
        launch.close()

    def test_what_steps_change_in_groups_is_of_the_version_and_goes_on_in_another_run(self) -> None:
        def count(peer: Peer) -> int:
            return int(peer.joined.clients[0].optimizer.param_groups[0]["k"])

        with self.run(2, make=CountsInGroups) as (_, (first, second)):
            for peer in (first, second, first, second):
                peer.push()
            assert (count(first), count(second)) == (3, 4)
            first.push()
            assert count(first) == 5  # not 4, which its stale copy would make
            snapshot = second.joined.snapshot()
            assert snapshot.optimizers[0]["param_groups"][0]["k"] == count(second) == 5
            first.joined.clients[0].optimizer.param_groups[0]["k"] = 10
            second.joined.pull()
            first.push()
            second.push()
            assert (count(first), count(second)) == (11, 12)
        launch = Launch(2, Settings(**self.settings))
        with self.launched(launch, CountsInGroups) as end_of:
            ends = [end_of(worker, DEADLINE_S) for worker in (0, 1)]
            peers = together(*[lambda end=end: self.joined(end, CountsInGroups) for end in ends])
            for peer in peers:  # as every worker loads a checkpoint
                peer.joined.clients[0].optimizer.param_groups[0]["k"] = 5
            peers[0].joined.restore(snapshot.versions, snapshot.optimizers)
            together(*[peer.joined.start for peer in peers])
            for peer in peers:
                peer.joined.begin()
            peers[0].push()
            peers[1].push()
            assert (count(peers[0]), count(peers[1])) == (6, 7)
            for peer in peers:
                peer.joined.finish()
        launch.close()

    def test_the_end_waits_until_all_is_applied(self) -> None:
        with self.run(2) as (_, (first, second)):

            def later() -> None:
                time.sleep(0.05)
                second.push()
                second.joined.finish()

            def at_the_end() -> set[float]:
                first.joined.finish()
                first.joined.wait_for_others()
                first.joined.pull()
                return first.values()

            assert together(at_the_end, later)[0] == {-1.0}

    # --- joining, dying, coming back -------------------------------------------------------------------------------

    def test_worker_0_announces_what_the_run_needs_before_it_takes_it(self) -> None:
        needs: list[MemoryNeed] = []
        launch = Launch(1, Settings(**self.settings))
        with self.launched(launch, counting) as end_of:
            parameters = [Parameter(torch.zeros(3)), Parameter(torch.zeros(2, 2))]
            joined = end_of(0, DEADLINE_S).join([counting(parameters)], needs.append)
            joined.begin()
            joined.finish()
        launch.close()
        assert [(need.parameters, need.gradients, need.snapshot) for need in needs] == [
            (128, 128, 0)
        ]  # two cache lines
        assert needs[0].total - 128 == needs[0].shared >= 2 * 128  # two versions or more

    def test_who_does_not_come_is_named_at_the_deadline(self) -> None:
        launch = Launch(2, Settings(**self.settings))
        with self.launched(launch, counting) as end_of:
            first = end_of(0, 0.1)
            with pytest.raises(TimeoutError, match=r"'tea': workers \[1\] did not arrive"):
                first.rendezvous("tea")
            launch.mark_dead(0)
            launch.mark_dead(1)
        launch.close()

    def test_nobody_waits_for_the_dead_and_who_comes_back_has_the_newest(self) -> None:
        launch = Launch(2, Settings(**{**self.settings, "rule": Sync()}))
        with self.launched(launch, counting) as end_of:
            first, second = together(*[lambda w=w: self.joined(end_of(w, DEADLINE_S), counting) for w in range(2)])
            together(first.joined.begin, second.joined.begin)
            together(first.push, second.push)
            launch.mark_dead(1)
            assert (first.end.living(), launch.living()) == ([0], [0])
            assert first.push().version == 2
            launch.rejoin(1)
            again = self.joined(end_of(1, DEADLINE_S), counting)
            again.joined.begin()
            assert (first.end.living(), again.values()) == ([0, 1], {-2.0})
            together(first.push, again.push)
            assert launch.figures.counts().updates == 3
            for peer in (first, again):
                peer.joined.finish()
        launch.close()

    # --- beside parameters -----------------------------------------------------------------------------------------

    def test_batches_are_taken_once_and_again_after_a_death(self) -> None:
        with self.run(2) as (launch, (first, second)):
            mine, theirs = first.end.cursor, second.end.cursor
            assert mine.workers == 2
            mine.enter_epoch(0, 0, 3, Deal.ONE_EACH)
            theirs.enter_epoch(1, 0, 3, Deal.ONE_EACH)
            assert (mine.take_batch(0), theirs.take_batch(1), mine.take_batch(0)) == (
                TakenBatch(0, 0),
                TakenBatch(0, 1),
                TakenBatch(0, 2),
            )
            before = mine.progress()
            mine.mark_done(0, 2)
            assert mine.progress() > before
            assert (theirs.take_batch(1), mine.outstanding({0})) == (None, 1)
            assert mine.state() == {0: [(1, 2)]}
            launch.mark_dead(1)
            assert mine.take_batch(0) == TakenBatch(0, 1)
            launch.rejoin(1)

    def test_what_one_says_the_others_hear(self) -> None:
        with self.run(2) as (launch, (first, second)):
            assert not second.end.signals.stop
            first.end.signals.add_plateau_step(PlateauStep(0, 0.5))
            assert second.end.signals.plateau_steps(0) == [PlateauStep(0, 0.5)]
            assert second.end.signals.plateau_steps(1) == []
            assert launch.arrivals() == [3, 3]
            first.end.signals.mark_begun()
            assert launch.arrivals() is None
            second.end.signals.ask_to_stop()
            assert first.end.signals.stop
            assert first.end.is_over()

    def test_messages_reach_all_that_come_to_a_place(self) -> None:
        with self.run(2) as (_, (first, second)):
            calls = [
                lambda one=one: one.end.meetings.gather_before_training(b"%d" % one.end.worker, "hello")
                for one in (first, second)
            ]
            assert together(*calls) == [{0: b"0", 1: b"1"}] * 2
            for one in (first, second):
                one.end.meetings.set_phase(Phase.TRAINING)
            meet = [
                lambda one=one: one.end.meetings.all_gather(5, b"x", "there", lambda: None) for one in (first, second)
            ]
            assert together(*meet) == [{0: b"x", 1: b"x"}] * 2
            differ = [lambda one=one: one.end.meetings.streams_differ(one.end.worker + 1) for one in (first, second)]
            assert together(*differ) == [True, True]

    def test_messages_may_be_long_and_of_different_lengths(self) -> None:
        with self.run(2) as (_, (first, second)):
            sent = {0: bytes(range(256)) * 12_000, 1: b""}
            before = [
                lambda one=one: one.end.meetings.gather_before_training(sent[one.end.worker], "long")
                for one in (first, second)
            ]
            assert together(*before) == [sent] * 2
            for one in (first, second):
                one.end.meetings.set_phase(Phase.TRAINING)
            meet = [
                lambda one=one: one.end.meetings.all_gather(5, sent[one.end.worker], "there", lambda: None)
                for one in (first, second)
            ]
            assert together(*meet) == [sent] * 2

    def test_what_a_worker_shows_of_its_row_is_there_when_another_looks(self) -> None:
        launch = Launch(2, Settings(**self.settings))
        with self.launched(launch, counting) as end_of:
            end_of(0, DEADLINE_S).rows.allocate(24)
            peers = together(*[lambda w=w: self.joined(end_of(w, DEADLINE_S), counting) for w in range(2)])
            rows = [peer.end.rows.map(24).view(torch.float64) for peer in peers]
            assert rows[0].tolist() == [[0.0] * 3] * 2
            rows[1][1] = torch.tensor([1.5, 2.5, 3.5])
            rows[0][0] = 4.5
            peers[1].end.rows.publish([(16, 24), (0, 8)])
            peers[0].end.rows.fetch([(1, 0, 8), (1, 16, 24)])
            assert rows[0][0].tolist() == [4.5] * 3
            assert rows[0][1, [0, 2]].tolist() == [1.5, 3.5]
            for peer in peers:
                peer.joined.finish()
        launch.close()

    def test_every_worker_adds_to_its_own_figures_and_reads_all(self) -> None:
        with self.run(2) as (_, (first, second)):
            before = second.end.now()
            first.end.add_time("compute", 2.0)
            second.end.add_time("data", 3.0)
            second.end.add_samples(16)
            first.end.note_memory(7_000)
            second.end.note_memory(3_000_000_000)
            second.push()
            second.end.sign_of_life()
            times = first.end.figures.worker_times()
            assert [(one.compute, one.data, one.samples, one.updates) for one in times] == [(2, 0, 0, 0), (0, 3, 16, 1)]
            assert times[1].pushed_bytes == 7 * 4
            assert [one.gradients for one in times] == [0, 1]
            assert [one.memory_bytes for one in times] == [7_000, 3_000_000_000]
            assert first.end.figures.counts() == (1, 16)
            assert first.end.figures.staleness().mean() == 0.0
            assert second.end.now() >= before
            assert first.end.settings.rule.name == "async"
