"""Which batches virtual workers take: what they ask the cursor, and how often."""

from collections.abc import Collection

import torch
from torch.utils.data import DataLoader, TensorDataset

from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.worker.cursor import Cursor
from scalebook.training.engine.worker.worker_end import Claim
from scalebook.training.lightning.data.claims_sampler import SimulatedClaims
from scalebook.training.lightning.data.epoch_order import EpochOrder


class Counting(Cursor):
    """Counts what is asked of it."""

    asked = 0

    def claim_batch(self, worker: int) -> Claim | None:
        self.asked += 1
        return super().claim_batch(worker)

    def outstanding(self, besides: Collection[int] = ()) -> int:
        self.asked += 1
        return super().outstanding(besides)


def claims(cursor: Cursor, epochs: int = 1) -> SimulatedClaims:
    order = EpochOrder(DataLoader(TensorDataset(torch.zeros(1))), alone=False)  # never asked: nothing is loaded

    def turn() -> int | None:
        raise AssertionError("nothing is loaded")

    return SimulatedClaims(
        cursor, Deal.IN_TURNS, True, order, turn, lambda epoch: cursor.workers, lambda: epochs, lambda: False
    )


def test_who_waits_for_others_asks_the_cursor_once_however_often_it_is_asked() -> None:
    """100 workers that wait at an epoch's end are asked again after each event."""
    cursor = Counting(3)
    of = claims(cursor, epochs=2)
    assert all(of.claim_batch(worker) for worker in range(3))
    of.mark_pushed(0)
    before = cursor.asked
    for _ in range(50):
        assert not of.claim_batch(0), "nobody begins an epoch before the others have ended this one"
        assert of.may_come_back(0)
    assert cursor.asked - before == 1
    of.mark_pushed(1)
    of.mark_pushed(2)
    assert of.claim_batch(0), "the second epoch"


def test_a_death_brings_back_what_it_had_taken() -> None:
    cursor = Counting(2)
    of = claims(cursor)
    assert of.claim_batch(0)
    assert of.claim_batch(1)
    of.mark_pushed(0)
    assert not of.claim_batch(0)
    of.lost(1)
    assert of.claim_batch(0), "the dead worker's batch"
