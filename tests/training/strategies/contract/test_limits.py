"""When training ends and when it is validated."""

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import EarlyStopping

from tests.training.strategies.contract.cases import BATCH, BATCHES, SAMPLES, WORKERS, Case, every, few, fitted
from tests.training.strategies.contract.models import Plain


@every
def test_max_steps_counts_updates_whoever_makes_them(case: Case, tmp_path: Path) -> None:
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=-1, max_steps=7)
    assert seen[0]["updates"] == 7
    assert len(seen) == WORKERS


@every
def test_max_epochs_counts_passes_over_the_data(case: Case, tmp_path: Path) -> None:
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=3)
    assert seen[0]["updates"] == case.updates(3 * BATCHES)
    assert sorted(seen[0]["train"] + seen[1]["train"]) == sorted(3 * list(range(SAMPLES)))


@few
def test_max_time_ends_all_workers(case: Case, tmp_path: Path) -> None:
    started = time.monotonic()
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=-1, max_time=timedelta(seconds=0.5))
    assert 0.5 <= time.monotonic() - started < 15
    assert len(seen) == WORKERS
    assert seen[0]["updates"] > 0


@few
def test_limited_batches(case: Case, tmp_path: Path) -> None:
    """Of training, as many as that for each worker; of validation, of what one worker validates."""
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=1, limit_train_batches=3, limit_val_batches=2)
    assert seen[0]["updates"] == case.updates(3 * WORKERS)
    assert len(seen[0]["val"]) == 2 * BATCH


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
    assert time.monotonic() - started < 20
    assert seen[0]["validations"] == 2
    assert len(seen) == WORKERS
