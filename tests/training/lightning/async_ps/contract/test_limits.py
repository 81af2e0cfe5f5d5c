"""When training ends and when it is validated."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping

from tests.training.lightning.async_ps.contract.cases import (
    BATCH,
    BATCHES,
    SAMPLES,
    WORKERS,
    Case,
    every,
    few,
    fitted,
    some,
)
from tests.training.lightning.async_ps.contract.models import Plain


@every
def test_max_steps_counts_updates_whoever_makes_them(case: Case, tmp_path: Path) -> None:
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=-1, max_steps=7)
    assert seen[0]["updates"] == 7
    assert len(seen) == WORKERS


@pytest.mark.thorough
@some
def test_max_epochs_counts_passes_over_the_data(case: Case, tmp_path: Path) -> None:
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=3)
    assert seen[0]["updates"] == case.updates(3 * BATCHES)
    assert sorted(seen[0]["train"] + seen[1]["train"]) == sorted(3 * list(range(SAMPLES)))


@few
def test_max_time_ends_all_workers(case: Case, tmp_path: Path) -> None:
    started = time.monotonic()
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=-1, max_time=timedelta(seconds=0.2))
    assert 0.2 <= time.monotonic() - started < 60
    assert len(seen) == WORKERS
    assert seen[0]["updates"] > 0


@pytest.mark.thorough
@few
def test_limited_batches(case: Case, tmp_path: Path) -> None:
    """Of training, as many as that for each worker; of validation, of all of the data."""
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=1, limit_train_batches=3, limit_val_batches=2)
    assert seen[0]["updates"] == case.updates(3 * WORKERS)
    assert sorted(sample for notes in seen for sample in notes["val"]) == list(range(2 * BATCH))


@pytest.mark.thorough
@pytest.mark.each_value
@few
@pytest.mark.parametrize(
    ("settings", "validations", "otherwise"),
    [
        ({"val_check_interval": 0.5}, 8, range(4, 9)),
        ({"val_check_interval": 2}, 12, range(4, 13)),
        ({"check_val_every_n_epoch": 2}, 2, [2]),
        ({"val_check_interval": 4, "check_val_every_n_epoch": None}, 6, range(1, 12)),
    ],
    ids=["half an epoch", "2 batches", "2 epochs", "4 batches over epochs"],
)
def test_validation_comes_when_it_was_asked_for(
    case: Case, settings: dict[str, Any], validations: int, otherwise: Sequence[int], tmp_path: Path
) -> None:
    """6 batches an epoch for each worker. Without lock-step worker 0 may have more or fewer, and catches up with one
    validation for several; in every epoch it has at least one batch, and the last validation."""
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=4, **settings)
    assert seen[0]["validations"] in ([validations] if case.exact else otherwise)


@few
def test_early_stopping_stops_all(case: Case, tmp_path: Path) -> None:
    stop = EarlyStopping("val/loss", patience=1, min_delta=1e9)
    started = time.monotonic()
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=10_000, callbacks=[stop])
    assert time.monotonic() - started < 60
    assert seen[0]["validations"] == 2
    assert len(seen) == WORKERS


@pytest.mark.thorough
@few
def test_validation_comes_by_the_clock(case: Case, tmp_path: Path) -> None:
    """Each 0.02 s of training and no more often, so many times within its epochs as there is time for."""
    pause = AtEveryBatch(lambda trainer: time.sleep(0.01))
    settings: dict[str, Any] = {"val_check_interval": {"seconds": 0.02}, "callbacks": [pause]}
    if case.is_ddp:
        with pytest.raises(ValueError, match=r"^trainer.val_check_interval: each worker measures the time with"):
            fitted(case, tmp_path, Plain(), max_epochs=3, **settings)
        return
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=3, **settings)
    assert 2 <= seen[0]["validations"] <= len(seen[0]["train"]) // BATCH
    assert seen[0]["updates"] == case.updates(3 * BATCHES)


@pytest.mark.each_value
@few
@pytest.mark.parametrize("worker", range(WORKERS))
def test_a_stop_of_any_worker_stops_all(case: Case, worker: int, tmp_path: Path) -> None:
    class Stop(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            wanted = trainer.global_rank == worker and trainer.fit_loop.total_batch_idx >= 3
            if case.is_ddp:  # its workers stop together or not at all
                wanted = trainer.strategy.reduce_boolean_decision(wanted, all=False)
            trainer.should_stop |= wanted

    made, _ = fitted(case, tmp_path, Plain(), max_epochs=10_000, callbacks=[Stop()])
    assert made.current_epoch < 5_000


class AtEveryBatch(Callback):
    def __init__(self, what: Callable[[Trainer], None]) -> None:
        self.what = what

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.what(trainer)
