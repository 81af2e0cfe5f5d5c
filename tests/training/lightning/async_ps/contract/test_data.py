"""Which worker sees what, in training and elsewhere; metrics over it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from tests.training.lightning.async_ps.contract.cases import (
    BATCH,
    SAMPLES,
    WORKERS,
    Case,
    batches,
    every,
    few,
    fitted,
    in_order,
    some,
)
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.small import HELD_OUT, data, loader, trainer

UNEVEN = 91  # 11 batches and 3 samples


@every
def test_uneven_data(case: Case, tmp_path: Path) -> None:
    """Each sample once an epoch; DDP fills up with repetitions, so that all workers have the same number."""
    _, seen = fitted(case, tmp_path, Plain(), train=batches(samples=UNEVEN), max_epochs=2)
    trained = sorted(seen[0]["train"] + seen[1]["train"])
    if case.is_ddp:
        assert set(trained) == set(range(UNEVEN))
        assert len(trained) == 2 * (UNEVEN + UNEVEN % WORKERS)
    else:
        assert trained == sorted(2 * list(range(UNEVEN)))


@few
def test_shuffled_data_is_shuffled_anew_in_every_epoch(case: Case, tmp_path: Path) -> None:
    _, seen = fitted(case, tmp_path, Plain(), train=loader(shuffle=True), max_epochs=2)
    assert sorted(seen[0]["train"] + seen[1]["train"]) == sorted(2 * list(range(SAMPLES)))
    first, second = seen[0]["train"][:BATCH], seen[1]["train"][:BATCH]
    assert first != sorted(first)
    assert not set(first) & set(second)


class Stream(IterableDataset[Any]):
    """Samples in order, without a length. Under DDP each worker must take its own part by itself, as with torch."""

    def __init__(self, divided: bool) -> None:
        self.divided = divided

    def __iter__(self) -> Iterator[Any]:
        whole = data(SAMPLES)
        world = torch.distributed.get_world_size() if self.divided else 1
        rank = torch.distributed.get_rank() if self.divided else 0
        return iter([whole[index] for index in range(rank, SAMPLES, world)])


@some
def test_iterable_data(case: Case, tmp_path: Path) -> None:
    stream = DataLoader(Stream(divided=case.is_ddp), batch_size=BATCH)
    _, seen = fitted(case, tmp_path, Plain(), train=stream, max_epochs=2)
    assert sorted(seen[0]["train"] + seen[1]["train"]) == sorted(2 * list(range(SAMPLES)))
    assert seen[0]["updates"] == case.updates(2 * SAMPLES // BATCH)


@few
def test_metrics_are_those_of_all_validation_data(case: Case, tmp_path: Path) -> None:
    model = Plain()
    made, _ = fitted(case, tmp_path, model, max_epochs=1)
    (expected,) = trainer(tmp_path, "auto").validate(model, in_order(), verbose=False)
    assert made.callback_metrics["val/mean_index"].item() == (HELD_OUT - 1) / 2
    assert made.callback_metrics["val/loss"].item() == pytest.approx(expected["val/loss"], rel=1e-5)
    assert 0 < made.callback_metrics["train/loss"].item() < 5


@pytest.mark.thorough
@few
def test_validate_and_test_need_no_training(case: Case, tmp_path: Path) -> None:
    (expected,) = trainer(tmp_path, "auto").validate(Plain(), in_order(), verbose=False)
    made = trainer(tmp_path, case.make(), devices=WORKERS, use_distributed_sampler=False)
    (validated,) = made.validate(Plain(), in_order(), verbose=False)
    (tested,) = made.test(Plain(), in_order(), verbose=False)
    assert validated == pytest.approx(expected)
    assert tested["test/loss"] == pytest.approx(expected["val/loss"])


@pytest.mark.thorough
@few
def test_predictions_come_back_in_order(case: Case, tmp_path: Path) -> None:
    model = Plain()
    predicted = trainer(tmp_path, case.make(), devices=WORKERS).predict(model, in_order())
    assert predicted is not None
    inputs = torch.stack([data()[index][0] for index in range(HELD_OUT)])
    mine = inputs[:: WORKERS if case.is_ddp else 1]  # DDP divides them among its workers
    torch.testing.assert_close(torch.cat(predicted), model.net(mine).detach())  # type: ignore[arg-type]
