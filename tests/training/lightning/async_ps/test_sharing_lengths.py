"""Limits, intervals and the ends of epochs, with shared batches."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.engine.rules.settings import Deal
from tests.training.lightning.async_ps.sharing_runs import Net, every, numbers, run


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({"limit_train_batches": 3}, 24),
        ({"limit_train_batches": 0.5}, 40),
        ({"limit_train_batches": 100}, 80),
        ({"overfit_batches": 2}, 16),
        ({"fast_dev_run": True}, 8),
    ],
)
def test_limits_are_per_worker_as_numbers_and_of_the_epoch_as_fractions(
    tmp_path: Path, settings: dict[str, Any], seen: int
) -> None:
    notes = run(tmp_path, lambda: numbers(80), 2, max_epochs=1, **settings)
    assert notes.samples(2) == [Counter(range(seen))]


@pytest.mark.parametrize("samples", [40, 36, 44])
def test_the_rest_of_an_accumulation_is_applied_at_the_end_of_the_epoch(tmp_path: Path, samples: int) -> None:
    notes = run(tmp_path, lambda: numbers(samples), 2, deal=Deal.IN_TURNS, accumulate_grad_batches=3)
    assert notes.samples(2) == every(samples)
    for worker in (0, 1):
        mine = -(-(samples // 4 - worker) // 2)
        assert Counter(epoch for epoch, _ in notes.read("step", worker)) == {0: -(-mine // 3), 1: -(-mine // 3)}


@pytest.mark.thorough
@pytest.mark.each_value
@pytest.mark.parametrize(
    ("workers", "deal"), [(1, Deal.ONE_EACH), (2, Deal.ONE_EACH), (2, Deal.WORKER_0), (2, Deal.IN_TURNS)]
)
@pytest.mark.parametrize(
    ("settings", "at"),
    [
        ({}, [10]),
        ({"val_check_interval": 0.5}, [5, 10]),
        ({"val_check_interval": 0.3}, [3, 6, 9]),
        ({"val_check_interval": 4}, [4, 8]),
        ({"val_check_interval": 10}, [10]),
    ],
)
def test_validation_comes_at_its_interval(
    tmp_path: Path, workers: int, deal: Deal, settings: dict[str, Any], at: list[int]
) -> None:
    notes = run(tmp_path, lambda: numbers(40 * workers), workers, deal=deal, pauses=(0.002, 0.002), **settings)
    found = notes.read("val", 0)
    if deal is Deal.IN_TURNS or workers == 1:
        assert found == [[epoch, batch] for epoch in (0, 1) for batch in at]
    else:
        assert [epoch for epoch, _ in found] == [0] * len(at) + [1] * len(at)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "settings", [{"check_val_every_n_epoch": 2}, {"check_val_every_n_epoch": None, "val_check_interval": 20}]
)
def test_validation_every_second_epoch_or_by_batches_of_worker_0(tmp_path: Path, settings: dict[str, Any]) -> None:
    notes = run(tmp_path, lambda: numbers(80), 2, deal=Deal.IN_TURNS, max_epochs=4, **settings)
    assert notes.read("val", 0) == [[1, 10], [3, 10]]


def test_the_length_that_lightning_is_told_is_an_equal_share_until_it_is_passed(tmp_path: Path) -> None:
    notes = run(tmp_path, lambda: numbers(80), 2, pauses=(0.0, 0.05), max_epochs=1)
    lengths = [length for _, length in notes.read("step", 0)]
    taken = len(lengths)
    assert taken > 12
    assert lengths == [max(10, number + 1) for number in range(1, taken)] + [taken]


def test_the_loaders_are_asked_for_again_each_epoch(tmp_path: Path) -> None:
    notes = run(tmp_path, lambda: numbers(42), 2, pauses=(0.0, 0.005), reload_dataloaders_every_n_epochs=1)
    assert notes.samples(2) == every(42)


def test_a_user_may_skip_the_rest_of_an_epoch(tmp_path: Path) -> None:
    class Skips(Net):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if batch_idx == 3 and self.current_epoch == 0 else None

    notes = run(tmp_path, lambda: numbers(80, num_workers=1), 2, deal=Deal.IN_TURNS, net=Skips)
    assert [sum(seen.values()) for seen in notes.samples(2)] == [24, 80]
