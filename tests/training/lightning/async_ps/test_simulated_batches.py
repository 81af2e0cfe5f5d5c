"""Which batches virtual workers take: what they ask the cursor, and how often."""

from collections.abc import Collection

import torch
from torch.utils.data import DataLoader, TensorDataset

from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.worker.cursor import Cursor
from scalebook.training.engine.worker.worker_end import TakenBatch
from scalebook.training.lightning.data.batch_queue import SimulatedBatchQueue
from scalebook.training.lightning.data.epoch_order import EpochOrder


class Counting(Cursor):
    """Counts what is asked of it."""

    asked = 0

    def take_batch(self, worker: int) -> TakenBatch | None:
        self.asked += 1
        return super().take_batch(worker)

    def outstanding(self, besides: Collection[int] = ()) -> int:
        self.asked += 1
        return super().outstanding(besides)


def batches(cursor: Cursor, epochs: int = 1) -> SimulatedBatchQueue:
    order = EpochOrder(DataLoader(TensorDataset(torch.zeros(1))), alone=False)  # never asked: nothing is loaded

    def turn() -> int | None:
        raise AssertionError("nothing is loaded")

    return SimulatedBatchQueue(
        cursor, Deal.IN_TURNS, True, order, turn, lambda epoch: cursor.workers, lambda: epochs, lambda: False
    )


def test_who_waits_for_others_asks_the_cursor_once_however_often_it_is_asked() -> None:
    """100 workers that wait at an epoch's end are asked again after each event."""
    cursor = Counting(3)
    of = batches(cursor, epochs=2)
    assert all(of.take_batch(worker) for worker in range(3))
    of.mark_pushed(0)
    before = cursor.asked
    for _ in range(50):
        assert not of.take_batch(0), "nobody begins an epoch before the others have ended this one"
        assert of.may_come_back(0)
    assert cursor.asked - before == 1
    of.mark_pushed(1)
    of.mark_pushed(2)
    assert of.take_batch(0), "the second epoch"


def test_a_death_brings_back_what_it_had_taken() -> None:
    cursor = Counting(2)
    of = batches(cursor)
    assert of.take_batch(0)
    assert of.take_batch(1)
    of.mark_pushed(0)
    assert not of.take_batch(0)
    of.lost(1)
    assert of.take_batch(0), "the dead worker's batch"
