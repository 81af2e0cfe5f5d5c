"""What a dead worker leaves, and what becomes of one that comes back."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.worker.cursor import Cursor
from scalebook.training.lightning.processes.process_watch import LostProcess, Reaction
from tests.training.benches import wait_for
from tests.training.lightning.async_ps.sharing_runs import Net, Notes, numbers, run


class DieAt(Callback):
    """Kills the process at its batch number `batch` of the run, before it or after its push."""

    def __init__(self, batch: int, after: bool = False) -> None:
        self.batch, self.after = batch, after

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if not self.after and trainer.fit_loop.total_batch_idx == self.batch:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if self.after and trainer.fit_loop.total_batch_idx == self.batch:
            os.kill(os.getpid(), signal.SIGKILL)


def mark_dead(cursor: Cursor, lost: LostProcess) -> Reaction:
    cursor.mark_dead(lost.number)
    return Reaction.GO_ON


def mark_dead_and_restart(cursor: Cursor, lost: LostProcess) -> Reaction:
    cursor.mark_dead(lost.number)
    cursor.rejoin(lost.number)
    return Reaction.RESTART


class NotAhead(Callback):
    """Worker 0 begins no batch before worker 1 has seen as many, until that dies: so worker 1 comes to its last batch,
    however slow it is."""

    def __init__(self, notes: Notes, last: int) -> None:
        self.notes, self.last = notes, last

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        wanted = min(trainer.fit_loop.total_batch_idx, self.last)
        wait_for(lambda: len(self.notes.read("train", 1)) >= wanted, f"batch {wanted} of worker 1")


@pytest.mark.parametrize("deal", [Deal.WORKER_0, Deal.ONE_EACH, Deal.IN_TURNS])
@pytest.mark.parametrize(("batch", "after"), [(0, False), (3, True), (11, False), (18, True)])
def test_what_a_dead_worker_leaves_is_done_by_the_others(tmp_path: Path, batch: int, after: bool, deal: Deal) -> None:
    notes = run(
        tmp_path,
        lambda: numbers(80, shuffle=True),
        2,
        deal=deal,
        lost=mark_dead,
        callbacks=lambda worker: [DieAt(batch, after) if worker == 1 else NotAhead(Notes(tmp_path), batch)],
    )
    seen = sum(notes.samples(2), Counter())
    assert seen == Counter(dict.fromkeys(range(80), 2))
    assert notes.read("end", 1) == []
    assert [epoch for epoch, _ in notes.read("val", 0)] == [0, 1]


class DieOnce(DieAt):
    def __init__(self, batch: int, mark: Path) -> None:
        super().__init__(batch)
        self.mark = mark

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if not self.mark.exists() and trainer.fit_loop.total_batch_idx == self.batch:
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("deal", [Deal.WORKER_0, Deal.ONE_EACH, Deal.IN_TURNS])
def test_a_restarted_worker_takes_part_again(tmp_path: Path, deal: Deal) -> None:
    notes = run(
        tmp_path,
        lambda: numbers(240, shuffle=True),
        2,
        pauses=(0.03, 0.01),
        deal=deal,
        lost=mark_dead_and_restart,
        callbacks=lambda worker: [DieOnce(12, tmp_path / "mark")] if worker == 1 else [],
        max_epochs=3,
    )
    assert sum(notes.samples(2), Counter()) == Counter(dict.fromkeys(range(240), 3))
    assert notes.read("end", 1)[0][:2] == [3, 0.01 / 8]  # it passed by what it had missed, schedulers too
    assert len(notes.read("train", 1)) > 20
    assert [epoch for epoch, _ in notes.read("val", 0)] == [0, 1, 2]


class ByHand(Net):
    """Manual optimization: two steps a batch."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.automatic_optimization = False

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        for _ in range(2):
            loss = super().training_step(batch, batch_idx)
            self.manual_backward(loss)
            self.optimizers().step()  # type: ignore[union-attr]
        return loss


def test_manual_optimization_with_a_death_at_the_very_end(tmp_path: Path) -> None:
    notes = run(
        tmp_path,
        lambda: numbers(40),
        2,
        pauses=(0.03, 1.0),
        lost=mark_dead,
        callbacks=lambda worker: [DieAt(1)] if worker == 1 else [],
        net=ByHand,
        max_epochs=1,
    )
    assert notes.samples(1) == [Counter({sample: 2 for sample in range(40) if sample not in range(4, 8)})]
    assert notes.read("end", 0)[0][2] == 3  # out of the rule's clocks, in again for what was left, out
