"""Learning rates: a schedule by step counts updates of the parameters, whoever makes them; one by epoch, epochs."""

import time
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, ReduceLROnPlateau, StepLR

from tests.training.lightning.async_ps.contract.cases import BATCHES, Case, few, fitted, some
from tests.training.lightning.async_ps.contract.models import Plain

RATE = 0.08


class Slow(Callback):
    """Batches that take longer than a validation, so that no worker runs epochs ahead of another."""

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        time.sleep(0.01)


def by_step(model: LightningModule) -> Any:
    optimizer = SGD(model.parameters(), lr=RATE)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": StepLR(optimizer, 4, 0.5), "interval": "step"}}


def by_epoch(model: LightningModule) -> Any:
    optimizer = SGD(model.parameters(), lr=RATE)
    return [optimizer], [ExponentialLR(optimizer, 0.5)]


def to_the_end(model: LightningModule) -> Any:
    """A schedule whose length is what Lightning estimates."""
    optimizer = SGD(model.parameters(), lr=RATE)
    steps = model.trainer.estimated_stepping_batches
    return [optimizer], [{"scheduler": CosineAnnealingLR(optimizer, int(steps)), "interval": "step"}]


def on_plateau(model: LightningModule) -> Any:
    optimizer = SGD(model.parameters(), lr=RATE)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=1e9, threshold_mode="abs")
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val/loss"}}


@some
def test_by_step_it_follows_the_updates(case: Case, tmp_path: Path) -> None:
    _, seen = fitted(case, tmp_path, Plain(by_step), max_epochs=2)
    updates = case.updates(2 * BATCHES)
    assert seen[0]["updates"] == updates
    assert seen[0]["lr"] == pytest.approx(RATE * 0.5 ** (updates // 4))
    for notes in seen:
        assert notes["lrs"] == sorted(notes["lrs"], reverse=True)
        assert set(notes["lrs"]) <= {RATE * 0.5**halved for halved in range(updates // 4 + 1)}
        if case.exact:
            assert notes["lrs"] == [RATE * 0.5 ** (update // 4) for update in range(updates)]


@pytest.mark.thorough
@few
def test_by_epoch_it_follows_the_epochs(case: Case, tmp_path: Path) -> None:
    _, seen = fitted(case, tmp_path, Plain(by_epoch), max_epochs=3)
    for notes in seen:
        assert set(notes["lrs"]) == {RATE, RATE / 2, RATE / 4}
        assert notes["lr"] == pytest.approx(RATE / 8)


@some
def test_a_schedule_of_the_estimated_length_ends_with_the_run(case: Case, tmp_path: Path) -> None:
    _, seen = fitted(case, tmp_path, Plain(to_the_end), max_epochs=2)
    assert seen[0]["lr"] == pytest.approx(0.0, abs=1e-9)
    assert max(notes["lrs"][0] for notes in seen) == RATE


@pytest.mark.thorough
@few
def test_a_plateau_that_worker_0_sees_is_one_for_all(case: Case, tmp_path: Path) -> None:
    _, seen = fitted(case, tmp_path, Plain(on_plateau), max_epochs=5, callbacks=[Slow()])
    assert seen[0]["lr"] == pytest.approx(RATE / 16)
    for notes in seen:
        assert notes["lrs"] == sorted(notes["lrs"], reverse=True)
        assert notes["lrs"][0] == RATE
        assert notes["lrs"][-1] in [RATE / 8] if case.exact else [RATE / 2, RATE / 4, RATE / 8]
