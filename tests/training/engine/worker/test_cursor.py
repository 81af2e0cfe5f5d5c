import mmap
import os
import random
import signal
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.worker.cursor import MOST_TAKEN, Cursor, TakenBatch
from tests.examples import examples


def take_all(cursor: Cursor, worker: int) -> list[TakenBatch]:
    held = []
    while (taken := cursor.take_batch(worker)) is not None:
        held.append(taken)
    return held


def test_one_worker_goes_through_the_epochs_in_order() -> None:
    cursor = Cursor(1)
    for epoch in range(3):
        cursor.enter_epoch(0, epoch, 5, Deal.ONE_EACH)
        assert take_all(cursor, 0) == [TakenBatch(epoch, batch) for batch in range(5)]
        cursor.mark_done(0, 5)
    assert cursor.outstanding() == 0


def test_each_worker_owns_one_batch_and_the_first_to_come_takes_the_others() -> None:
    cursor = Cursor(3)
    for worker in range(3):
        cursor.enter_epoch(worker, 0, 10, Deal.ONE_EACH)
    assert take_all(cursor, 2) == [TakenBatch(0, 2)] + [TakenBatch(0, batch) for batch in range(3, 10)]
    assert take_all(cursor, 0) == [TakenBatch(0, 0)]
    cursor.enter_epoch(2, 1, 10, Deal.ONE_EACH)
    assert cursor.take_batch(2) == TakenBatch(1, 2)
    assert take_all(cursor, 1) == [TakenBatch(0, 1)]


def test_by_turns_batch_i_is_worker_i_modulo_workers() -> None:
    cursor = Cursor(3)
    for worker in range(3):
        cursor.enter_epoch(worker, 0, 7, Deal.IN_TURNS)
    assert [[batch for _, batch in take_all(cursor, worker)] for worker in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]


def test_without_shares_whoever_comes_takes_the_next_batch() -> None:
    cursor = Cursor(3)
    for worker in (2, 1):
        assert cursor.enter_epoch(worker, 0, 6, Deal.WORKER_0)
    assert [cursor.take_batch(worker) for worker in (2, 2, 1, 2, 1)] == [TakenBatch(0, batch) for batch in range(1, 6)]
    assert cursor.take_batch(1) is None
    assert cursor.enter_epoch(1, 1, 6, Deal.WORKER_0), "it waits for nobody"
    assert cursor.enter_epoch(0, 0, 6, Deal.WORKER_0)
    assert take_all(cursor, 0) == [TakenBatch(0, 0)], "worker 0 has a batch of each epoch"
    nobody = Cursor(2)
    for worker in (1, 0):
        assert nobody.enter_epoch(worker, 0, 2, Deal.NOBODY)
    assert [take_all(nobody, worker) for worker in (1, 0)] == [[TakenBatch(0, 0), TakenBatch(0, 1)], []]


@pytest.mark.parametrize("deal", list(Deal))
def test_what_the_dead_had_taken_comes_first_then_its_share(deal: Deal) -> None:
    cursor = Cursor(2)
    cursor.enter_epoch(0, 0, 6, deal)
    cursor.enter_epoch(1, 0, 6, deal)
    dead = [taken for _ in range(2) if (taken := cursor.take_batch(1)) is not None]
    cursor.mark_done(1)
    cursor.mark_dead(1)
    assert cursor.take_batch(0) == dead[1]
    rest = take_all(cursor, 0)
    assert sorted([dead[0], dead[1], *rest]) == [TakenBatch(0, batch) for batch in range(6)]
    assert deal is Deal.NOBODY or rest[0] == TakenBatch(0, 0)


def test_fewer_batches_than_workers_leave_some_without() -> None:
    cursor = Cursor(3)
    for worker in range(3):
        cursor.enter_epoch(worker, 0, 2, Deal.ONE_EACH)
    assert [take_all(cursor, worker) for worker in range(3)] == [[TakenBatch(0, 0)], [TakenBatch(0, 1)], []]


def test_who_owns_nothing_waits_for_the_others_and_goes_with_them() -> None:
    """Else it would be a ring of epochs ahead, and what is left of those of the others would be forgotten."""
    cursor = Cursor(3)
    assert not cursor.enter_epoch(2, 0, 2, Deal.ONE_EACH)
    for epoch in range(3):
        assert cursor.enter_epoch(0, epoch, 2, Deal.ONE_EACH)
        assert cursor.enter_epoch(2, epoch, 2, Deal.ONE_EACH)
        assert not cursor.enter_epoch(2, epoch + 1, 2, Deal.ONE_EACH)
    assert cursor.enter_epoch(2, 3, 3, Deal.ONE_EACH), "it owns one of these"
    cursor.mark_dead(0)
    assert not cursor.enter_epoch(2, 4, 2, Deal.ONE_EACH)
    cursor.mark_dead(1)
    assert cursor.enter_epoch(2, 4, 2, Deal.ONE_EACH)
    assert cursor.take_batch(2) == TakenBatch(2, 0)


def test_a_revived_worker_finds_past_epochs_empty_and_its_own_batches_first() -> None:
    cursor = Cursor(2)
    for worker in (0, 1):
        cursor.enter_epoch(worker, 0, 4, Deal.ONE_EACH)
    assert cursor.take_batch(1) == TakenBatch(0, 1)
    cursor.mark_dead(1)
    cursor.rejoin(1)
    cursor.enter_epoch(1, 0, 4, Deal.ONE_EACH)
    assert cursor.take_batch(1) == TakenBatch(0, 1)
    assert len(take_all(cursor, 0)) == 3
    cursor.enter_epoch(0, 1, 4, Deal.ONE_EACH)
    assert cursor.take_batch(1) is None
    cursor.enter_epoch(1, 1, 4, Deal.ONE_EACH)
    assert cursor.take_batch(1) == TakenBatch(1, 1)


def test_outstanding_counts_what_a_death_could_bring_back() -> None:
    cursor = Cursor(3)
    cursor.enter_epoch(0, 0, 4, Deal.ONE_EACH)
    assert len(take_all(cursor, 0)) == 2
    assert cursor.outstanding({0}) == 2  # the shares of 1 and 2
    cursor.enter_epoch(1, 0, 4, Deal.ONE_EACH)
    cursor.take_batch(1)
    assert cursor.outstanding({0}) == 2
    cursor.mark_done(1)
    assert cursor.outstanding({0}) == 1
    cursor.mark_dead(2)
    assert cursor.outstanding({0}) == 0
    assert cursor.take_batch(0) == TakenBatch(0, 2)


def test_state_is_what_is_not_done() -> None:
    cursor = Cursor(2)
    cursor.enter_epoch(0, 0, 10, Deal.ONE_EACH)
    assert [cursor.take_batch(0) for _ in range(3)] == [TakenBatch(0, 0), TakenBatch(0, 2), TakenBatch(0, 3)]
    cursor.mark_done(0, 2)
    assert cursor.state() == {0: [(1, 2), (3, 10)]}
    take_all(cursor, 0)
    cursor.mark_done(0, 7)
    cursor.enter_epoch(0, 1, 10, Deal.ONE_EACH)
    assert cursor.state() == {0: [(1, 2)], 1: [(0, 10)]}
    cursor.enter_epoch(1, 0, 10, Deal.ONE_EACH)
    cursor.take_batch(1)
    cursor.mark_done(1)
    assert cursor.state() == {0: [], 1: [(0, 10)]}
    cursor.enter_epoch(1, 1, 10, Deal.ONE_EACH)
    assert cursor.state() == {1: [(0, 10)]}


def test_workers_that_disagree_on_the_length_of_an_epoch_are_refused() -> None:
    cursor = Cursor(2)
    cursor.enter_epoch(0, 0, 10, Deal.ONE_EACH)
    with pytest.raises(ValueError, match="data: epoch 0 has 11 batches in worker 1 but 10 in another"):
        cursor.enter_epoch(1, 0, 11, Deal.ONE_EACH)


def test_more_batches_than_there_is_room_for_are_refused() -> None:
    cursor = Cursor(1)
    cursor.enter_epoch(0, 0, MOST_TAKEN + 1, Deal.ONE_EACH)
    for _ in range(MOST_TAKEN):
        cursor.take_batch(0)
    with pytest.raises(ValueError, match=r"trainer\.accumulate_grad_batches: 4096 batches wait"):
        cursor.take_batch(0)
    cursor.mark_done(0)
    assert cursor.take_batch(0) == TakenBatch(0, MOST_TAKEN)


class Simulation:
    """Workers as the loader uses a cursor, in one process, interleaved by a seed; remembers what was done."""

    def __init__(self, workers: int, epochs: int, batches: list[int], deal: Deal, seed: int) -> None:
        self.cursor = Cursor(workers)
        self.workers, self.epochs, self.batches, self.deal = workers, epochs, batches, deal
        self.random = random.Random(seed)
        self.epoch = [-1] * workers
        self.held: list[list[TakenBatch]] = [[] for _ in range(workers)]
        self.finished, self.alive = [False] * workers, [True] * workers
        self.done: Counter[TakenBatch] = Counter()

    def step(self, worker: int) -> None:
        if self.epoch[worker] < 0 and not self.enter(worker, 0):
            return
        held = self.held[worker]
        if held and self.random.random() < 0.5:
            count = self.random.randint(1, len(held))
            self.done.update(held[:count])
            del held[:count]
            self.cursor.mark_done(worker, count)
            return
        taken = self.cursor.take_batch(worker)
        if taken is not None:
            assert taken.epoch <= self.epoch[worker]
            assert self.done[taken] == 0
            assert not any(taken in other for other in self.held)
            held.append(taken)
        elif held:
            return  # they are pushed before the epoch ends
        elif self.epoch[worker] + 1 < self.epochs:
            self.enter(worker, self.epoch[worker] + 1)
        elif not self.cursor.outstanding({worker}):
            assert self.cursor.take_batch(worker) is None
            self.finished[worker] = True

    def enter(self, worker: int, epoch: int) -> bool:
        has_begun = self.cursor.enter_epoch(worker, epoch, self.batches[epoch % len(self.batches)], self.deal)
        if has_begun:
            self.epoch[worker] = epoch
        return has_begun

    def kill(self, worker: int) -> None:
        self.alive[worker], self.epoch[worker] = False, -1
        self.held[worker].clear()
        self.cursor.mark_dead(worker)

    def rejoin(self, worker: int) -> None:
        self.alive[worker] = True
        self.cursor.rejoin(worker)

    def run(self, deaths: float, revivals: float) -> None:
        speed = [self.random.choice((1, 1, 5, 20)) for _ in range(self.workers)]
        while True:
            running = [w for w in range(self.workers) if self.alive[w] and not self.finished[w]]
            if not running:
                return
            worker = self.random.choices(running, [speed[w] for w in running])[0]
            if self.random.random() < deaths and sum(self.alive) > 1 and len(running) > 1:
                self.kill(worker)
            else:
                self.step(worker)
            dead = [w for w in range(self.workers) if not self.alive[w]]
            if dead and self.random.random() < revivals:
                self.rejoin(self.random.choice(dead))
            self.check_state()

    def check_state(self) -> None:
        if self.random.random() < 0.05:
            for epoch, ranges in self.cursor.state().items():
                left = {batch for start, stop in ranges for batch in range(start, stop)}
                done = {batch for taken_epoch, batch in self.done if taken_epoch == epoch}
                assert left == set(range(self.batches[epoch % len(self.batches)])) - done


@examples(150)
@given(
    workers=st.integers(1, 5),
    epochs=st.integers(1, 4),
    batches=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    deal=st.sampled_from(list(Deal)),
    deaths=st.sampled_from((0.0, 0.01, 0.1)),
    revivals=st.sampled_from((0.0, 0.02)),
    seed=st.integers(0, 2**32),
)
def test_every_batch_of_every_epoch_is_done_exactly_once(
    workers: int, epochs: int, batches: list[int], deal: Deal, deaths: float, revivals: float, seed: int
) -> None:
    simulation = Simulation(workers, epochs, batches, deal, seed)
    simulation.run(deaths, revivals)
    expected = {TakenBatch(e, b) for e in range(epochs) for b in range(batches[e % len(batches)])}
    assert simulation.done == Counter(dict.fromkeys(expected, 1))


WORKERS, RUN_EPOCHS, RUN_BATCHES = 3, 500, 40


def work(cursor: Cursor, worker: int, applied: Any, deal: Deal) -> None:
    """What a worker does, as fast as it can: takes batches ahead, counts each batch in `applied` [epoch, batch], says
    so."""
    for epoch in range(RUN_EPOCHS):
        cursor.enter_epoch(worker, epoch, RUN_BATCHES, deal)
        while True:
            held = [taken for _ in range(2) if (taken := cursor.take_batch(worker)) is not None]
            for taken in held:
                applied[taken.epoch * RUN_BATCHES + taken.batch] += 1
                cursor.mark_done(worker)
            if not held and (epoch + 1 < RUN_EPOCHS or not cursor.outstanding({worker})):
                break


@pytest.mark.sampled
@pytest.mark.parametrize("deal", list(Deal))
def test_processes_killed_at_random_moments_lose_nothing(deal: Deal) -> None:
    cursor, draw = Cursor(WORKERS, deadline_s=10.0), random.Random(1)
    shared = mmap.mmap(-1, 8 * RUN_EPOCHS * RUN_BATCHES)
    applied = memoryview(shared).cast("q")

    def start(worker: int) -> int:
        pid = os.fork()
        if pid == 0:
            work(cursor, worker, applied, deal)
            os._exit(0)
        return pid

    running = {start(worker): worker for worker in range(WORKERS)}
    kills, until = 0, time.monotonic() + 30
    while running:
        assert time.monotonic() < until, "hangs"
        time.sleep(draw.uniform(0, 0.004))
        if kills < 30:
            os.kill(draw.choice(list(running)), signal.SIGKILL)
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended and status != 0:
                assert status == signal.SIGKILL
                worker, kills = running[pid], kills + 1
                cursor.mark_dead(worker)
                del running[pid]
                if draw.random() < 0.8 or not running:
                    cursor.rejoin(worker)
                    running[start(worker)] = worker
            elif ended:
                del running[pid]
    counts = Counter(applied.tolist())
    assert counts[0] == 0
    assert sum(applied) - len(applied) <= kills  # a batch killed between its update and `done`
    assert kills >= 10


def test_state_knows_the_pool_that_the_dead_left_to_a_worker_that_comes_late() -> None:
    cursor = Cursor(2)
    cursor.enter_epoch(0, 0, 6, Deal.ONE_EACH)
    assert cursor.take_batch(0) == TakenBatch(0, 0)
    cursor.mark_done(0)
    cursor.mark_dead(0)
    assert cursor.state() == {0: [(1, 6)]}
