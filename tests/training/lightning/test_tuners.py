"""Lightning's tuner under AsyncPS finds what it finds with a plain Trainer, and the workers begin with it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.tuner.tuning import Tuner
from torch.optim import SGD
from torch.utils.data import DataLoader

from scalebook.training.lightning import AsyncPS
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.small import Diary, data, diaries, loader, trainer, weights

pytestmark = pytest.mark.long

MANY = 320  # samples


class Tuned(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.lr = 1e-3

    def configure_optimizers(self) -> Any:
        return SGD(self.parameters(), lr=self.lr)


class OwnDigits(LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        self.batch_size = 2

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(data(MANY), batch_size=self.batch_size)

    def val_dataloader(self) -> DataLoader[Any]:
        return self.train_dataloader()


def model() -> Tuned:
    torch.manual_seed(5)
    return Tuned()


def made(folder: Path, strategy: Strategy | str, *callbacks: Any) -> Trainer:
    return trainer(folder, strategy, callbacks=[*callbacks], max_epochs=1)


def rates() -> LearningRateFinder:
    return LearningRateFinder(num_training_steps=20)


def test_a_rate_is_found_as_by_a_plain_trainer_and_trained_with(tmp_path: Path) -> None:
    plain, one, finders = model(), model(), [rates(), rates()]
    made(tmp_path, "auto", finders[0]).fit(plain, loader(samples=MANY), loader())
    made(tmp_path, AsyncPS(workers=1), finders[1]).fit(one, loader(samples=MANY), loader())
    expected, found = finders[0].optimal_lr, finders[1].optimal_lr
    assert expected is not None
    assert found is not None
    assert found.results == expected.results
    assert one.lr == plain.lr != 1e-3
    torch.testing.assert_close(weights(one), weights(plain), rtol=0, atol=0)
    assert not list(tmp_path.glob(".lr_find*"))


@pytest.mark.parametrize("host", ["inline", "process"])
def test_every_worker_trains_with_what_was_found(host: Any, tmp_path: Path) -> None:
    one, finder = model(), rates()
    asked = made(tmp_path, AsyncPS(workers=2, host=host), finder, Diary(tmp_path))
    asked.fit(one, loader(samples=MANY), loader())
    seen = diaries(tmp_path)
    assert {rate for notes in seen for rate in notes["lrs"]} == {one.lr}
    assert one.lr != 1e-3
    assert finder in asked.callbacks  # type: ignore[attr-defined]


def test_a_batch_size_is_found_and_used(tmp_path: Path) -> None:
    digits, finder = OwnDigits(), BatchSizeFinder(max_trials=3, steps_per_trial=1)
    made(tmp_path, AsyncPS(workers=2), finder, Diary(tmp_path)).fit(model(), datamodule=digits)
    assert finder.optimal_batch_size == digits.batch_size == 8
    assert diaries(tmp_path)[0]["updates"] == MANY // 8


@pytest.mark.parametrize("gpu", [False, True])
def test_a_tuner_searches_and_leaves_the_trainer_as_it_was(
    gpu: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a GPU in a process of its own."""
    monkeypatch.setattr("torch.accelerator.is_available", lambda: gpu)
    one, digits = model(), OwnDigits()
    before = weights(one).clone()
    strategy = AsyncPS(workers=2)
    asked = made(tmp_path, strategy)
    tuner = Tuner(asked)
    assert tuner.scale_batch_size(one, datamodule=digits, max_trials=2, steps_per_trial=1) == digits.batch_size == 4
    found = tuner.lr_find(one, datamodule=digits, num_training=20)
    assert found is not None
    assert found.suggestion() == one.lr != 1e-3
    assert torch.equal(weights(one), before)
    assert asked.strategy is strategy
    asked.fit(one, datamodule=digits)
    assert not torch.equal(weights(one), before)


@pytest.mark.thorough
def test_the_trainer_has_what_it_has_searched_with(tmp_path: Path) -> None:
    one, digits, asked = model(), OwnDigits(), made(tmp_path, AsyncPS(workers=2), Diary(tmp_path))
    found = Tuner(asked).scale_batch_size(one, datamodule=digits, max_trials=2, steps_per_trial=1)
    assert asked.train_dataloader is not None
    assert asked.train_dataloader.batch_size == found == 4
    assert asked.datamodule is digits  # type: ignore[attr-defined]  # a property of Lightning's, untyped
    assert one.trainer is asked
    assert not diaries(tmp_path)


def test_a_search_that_fails_leaves_the_strategy(tmp_path: Path) -> None:
    class Fails(Tuned):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise ZeroDivisionError

    strategy = AsyncPS(workers=2)
    asked = made(tmp_path, strategy)
    with pytest.raises(ZeroDivisionError):
        Tuner(asked).lr_find(Fails(), loader(samples=MANY), loader())
    assert asked.strategy is strategy


@pytest.mark.thorough
def test_a_batch_size_is_found_for_validation(tmp_path: Path) -> None:
    digits = OwnDigits()
    tuner = Tuner(made(tmp_path, AsyncPS(workers=2)))
    found = tuner.scale_batch_size(model(), datamodule=digits, method="validate", max_trials=2, steps_per_trial=1)
    assert found == digits.batch_size == 4


def test_what_lightning_refuses_is_refused_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(MisconfigurationException, match="cannot be used with dataloaders passed directly"):
        made(tmp_path, AsyncPS(workers=2), BatchSizeFinder()).fit(model(), loader(samples=MANY), loader())
