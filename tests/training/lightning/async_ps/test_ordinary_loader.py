"""What a person finds of the training loader while it is shared: what an ordinary Trainer would show."""

import os
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Trainer
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.worker.cursor import Cursor
from scalebook.training.lightning.async_ps.async_ps import AsyncPS
from scalebook.training.lightning.data.data_sharing import SharedData
from scalebook.training.lightning.steps import Interval
from tests.training.lightning.async_ps.sharing_runs import numbers
from tests.training.lightning.async_ps.small import SAMPLES, Diary, Small, data, diaries, loader, trainer


class Told(RandomSampler):
    """Keeps the epochs that it is told."""

    def __init__(self) -> None:
        super().__init__(range(SAMPLES))
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


class Looks(Small):
    """Notes what the Trainer shows."""

    def __init__(self, passed: DataLoader[Any], told: Told | None = None) -> None:
        super().__init__()
        self.passed, self.told = passed, told
        self.notes: dict[str, Any] = {"own": [], "intervals": [], "samplers": []}

    def _look(self) -> None:
        shown: Any = self.trainer.train_dataloader
        self.notes["own"].append(shown is self.passed)
        self.notes["samplers"].append([type(shown.sampler).__name__, shown.batch_size, len(shown)])

    def on_train_start(self) -> None:
        self._look()

    def on_train_epoch_start(self) -> None:
        self._look()

    def on_train_batch_end(self, *_: Any) -> None:
        self.notes["intervals"].append(self.trainer.val_check_batch)

    def on_train_end(self) -> None:
        self.notes["epochs"] = self.told.epochs if self.told else []


def looked(folder: Path, workers: int, model: Looks, **settings: Any) -> list[dict[str, Any]]:
    made = trainer(
        folder, AsyncPS(workers=workers, limits=Limits(deadline_s=20)), callbacks=[Diary(folder)], **settings
    )
    made.fit(model, model.passed, loader())
    return diaries(folder)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("interval", [3, 0.5])
def test_the_interval_is_that_of_a_share(workers: int, interval: float, tmp_path: Path) -> None:
    share = SAMPLES // 8 // workers
    for seen in looked(tmp_path, workers, Looks(loader()), val_check_interval=interval):
        assert set(seen["intervals"]) == {interval if isinstance(interval, int) else int(share * interval)}


def test_an_interval_divides_what_it_is_told_to() -> None:
    interval = Interval(4, divides=5)
    assert interval == 4
    assert [batches for batches in range(1, 11) if batches % interval == 0] == [5, 10]
    assert type(interval.__reduce__()[0](*interval.__reduce__()[1])) is int


def test_with_one_worker_it_is_what_was_passed(tmp_path: Path) -> None:
    (seen,) = looked(tmp_path, 1, Looks(loader(shuffle=True)), reload_dataloaders_every_n_epochs=1)
    assert seen["own"] == [True] * 3


def test_with_two_it_has_that_ones_settings_and_this_workers_length(tmp_path: Path) -> None:
    for seen in looked(tmp_path, 2, Looks(loader(shuffle=True))):
        assert seen["samplers"] == [["RandomSampler", 8, SAMPLES // 8 // 2]] * 3


@pytest.mark.parametrize("in_batches", [True, False])
def test_a_sampler_is_told_each_epoch_once(in_batches: bool, tmp_path: Path) -> None:
    told = Told()
    how: dict[str, Any] = {"batch_sampler": BatchSampler(told, 8, True)} if in_batches else {"sampler": told}
    (seen,) = looked(tmp_path, 1, Looks(DataLoader(data(), **how), told), max_epochs=3)
    assert seen["epochs"] == [0, 1, 2]


class Ends(_MultiProcessingDataLoaderIter):
    """Writes down where it is ended."""

    def __init__(self, loader: "Persistent") -> None:
        self.path = loader.path
        super().__init__(loader)

    def _shutdown_workers(self) -> None:
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")
        super()._shutdown_workers()


class Persistent(DataLoader[Any]):
    def __init__(self, path: Path) -> None:
        super().__init__(data(), batch_size=8, num_workers=1, persistent_workers=True)
        self.path = path

    def _get_iterator(self) -> _BaseDataLoaderIter:
        return Ends(self)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_loaders_own_processes_end_with_the_training(workers: int, tmp_path: Path) -> None:
    seen = looked(tmp_path, workers, Looks(Persistent(tmp_path / "ends")))
    assert {int(pid) for pid in (tmp_path / "ends").read_text().split()} == {one["pid"] for one in seen}


@pytest.mark.parametrize("workers", [1, 2])
def test_too_few_loader_processes_are_warned_of(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightning.fabric.utilities.data._num_cpus_available", lambda: 4)
    made = Trainer(default_root_dir=tmp_path, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False)
    with pytest.warns(UserWarning, match="'train_dataloader' does not have many workers"):
        SharedData(Cursor(workers), Deal.ONE_EACH).process(made, numbers(8))
