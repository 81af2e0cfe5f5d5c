import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.worker.cursor import Cursor, RedoLog, Write

pytestmark = pytest.mark.sampled

Operation = Callable[[Cursor], Any]


class Mortal:
    """Words that kill the process that writes them, before its `left`-th write."""

    left = 10**9

    def __init__(self, counters: Any) -> None:
        self.counters = counters

    def __getitem__(self, index: int) -> int:
        return int(self.counters[index])

    def __setitem__(self, index: int, value: int) -> None:
        if Mortal.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        Mortal.left -= 1
        self.counters[index] = value


def test_writes_are_seen_by_other_processes_and_only_whole() -> None:
    journal = RedoLog(4, deadline_s=5.0)
    with journal.locked():
        journal.commit([(0, 7), (3, -1)])
    if (pid := os.fork()) == 0:
        with journal.locked():
            journal.commit([(1, journal.counters[0])])
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert journal.counters.tolist() == [7, 7, 0, -1]


def two_workers(deal: Deal) -> Cursor:
    cursor = Cursor(3, deadline_s=5.0)
    for worker in range(3):
        cursor.enter_epoch(worker, 0, 9, deal)
        cursor.take_batch(worker)
        cursor.take_batch(worker)
    cursor.mark_dead(2)
    return cursor


def killed_at(write: int, cursor: Cursor, operation: Operation) -> bool:
    """Do it in a process that is killed before its `write`-th write; False when it has fewer."""
    if (pid := os.fork()) == 0:
        Mortal.left = write
        cursor._counters = Mortal(cursor._counters)  # type: ignore[assignment]  # reads and writes like a memoryview
        cursor._journal.counters = cursor._counters
        cursor._journal._listed = Mortal(cursor._journal._listed)  # type: ignore[assignment]
        operation(cursor)
        os._exit(0)
    return os.waitpid(pid, 0)[1] != 0


def whole_states(deal: Deal, operation: Operation) -> tuple[set[tuple[int, ...]], tuple[int, ...]]:
    """All counters before the operation and after each change in it; and after it."""
    cursor = two_workers(deal)
    states, commit = {tuple(cursor._counters)}, cursor._commit

    def remember(writes: list[Write]) -> None:
        commit(writes)
        states.add(tuple(cursor._counters))

    cursor._commit = remember
    operation(cursor)
    after = tuple(cursor._counters)
    return states | {after}, after


OPERATIONS: dict[str, Operation] = {
    "take": lambda cursor: cursor.take_batch(0),  # what a dead worker had taken
    "takes": lambda cursor: [cursor.take_batch(0) for _ in range(4)],  # and then its own share, a dead one's, the pool
    "done": lambda cursor: cursor.mark_done(0, 2),
    "begin": lambda cursor: cursor.enter_epoch(1, 1, 5, Deal.ONE_EACH),
    "mark_dead": lambda cursor: cursor.mark_dead(1),
    "rejoin": lambda cursor: cursor.rejoin(2),
}


@pytest.mark.parametrize(
    ("deal", "operation"),
    [  # per commit each operation once, each deal by turns
        pytest.param(
            deal, operation, id=f"{name}-{deal.name}", marks=pytest.mark.drill if number % len(Deal) != deal else ()
        )
        for deal in Deal
        for number, (name, operation) in enumerate(OPERATIONS.items())
    ],
)
def test_a_kill_at_any_write_leaves_the_state_before_or_after(
    deal: Deal, operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scalebook.training.engine.worker.cursor.MOST_TAKEN", 8)  # fewer counters to compare
    monkeypatch.setattr("scalebook.training.engine.worker.cursor.EPOCHS", 4)
    states, after = whole_states(deal, operation)
    kills = 0
    while killed_at(kills, cursor := two_workers(deal), operation):
        with cursor._locked():
            assert tuple(cursor._counters) in states
        kills += 1
    assert kills >= 1
    assert tuple(cursor._counters) == after
