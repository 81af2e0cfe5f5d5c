"""Every sample once an epoch, by any loader, in an order that the number of workers does not change."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything
from torch.utils.data import BatchSampler, DataLoader, TensorDataset, WeightedRandomSampler

from scalebook.training.engine.rules.settings import Deal
from scalebook.training.zoo.data.module import ImageBatches, LabelledImages
from scalebook.training.zoo.data.module import loader as memory_loader
from scalebook.training.zoo.shuffle import EpochShuffle
from tests.training.lightning.async_ps.sharing_runs import Net, Notes, every, in_order, numbers, run


@pytest.mark.parametrize("deal", [Deal.WORKER_0, Deal.ONE_EACH, Deal.IN_TURNS])
@pytest.mark.parametrize(("workers", "samples"), [(1, 46), (2, 46), (3, 40), (3, 9)])
def test_every_sample_is_seen_once_an_epoch(tmp_path: Path, workers: int, samples: int, deal: Deal) -> None:
    notes = run(tmp_path, lambda: numbers(samples, shuffle=True), workers, deal=deal)
    assert notes.samples(workers) == every(samples)
    assert [line[0] for line in notes.read("val", 0)] == [0, 1]
    assert [notes.read("end", worker)[0][:2] for worker in range(workers)] == [[2, 0.0025]] * workers


def test_a_slow_worker_takes_fewer_batches(tmp_path: Path) -> None:
    notes = run(tmp_path, lambda: numbers(160, shuffle=True), 2, pauses=(0.0, 0.04))
    assert notes.samples(2) == every(160)
    fast, slow = (len(notes.read("train", worker)) for worker in (0, 1))
    assert fast > 3 * slow >= 2 * 3
    assert [epoch for epoch, _ in notes.read("val", 0)] == [0, 1]


def test_a_slow_worker_0_validates_once_an_epoch_however_far_the_others_are(tmp_path: Path) -> None:
    notes = run(tmp_path, lambda: numbers(40), 3, pauses=(0.1, 0.0, 0.0), max_epochs=4)
    assert notes.samples(3) == every(40, 4)
    batches = Counter(epoch for epoch, *_ in notes.read("train", 0))
    assert notes.read("val", 0) == [[epoch, batches[epoch]] for epoch in range(4)]


class Evens(BatchSampler):
    """A user's own batch sampler, of no torch class's arguments: pairs (i, i + half), in random order."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[list[int]]:
        half = self.samples // 2
        for index in torch.randperm(half).tolist():
            yield [index, index + half]

    def __len__(self) -> int:
        return self.samples // 2


def images() -> DataLoader[Any]:
    pixels = torch.arange(42, dtype=torch.uint8).view(-1, 1, 1, 1)
    made = ImageBatches(LabelledImages(pixels, pixels.flatten().long()), torch.zeros(1), torch.ones(1))
    return memory_loader(made, 4, EpochShuffle(made))


@pytest.mark.parametrize(
    "loader",
    [
        lambda: numbers(42, num_workers=2, shuffle=True),
        lambda: numbers(42, num_workers=1, persistent_workers=True, prefetch_factor=4),
        lambda: DataLoader(TensorDataset(torch.arange(42)), batch_sampler=Evens(42)),
        lambda: DataLoader(TensorDataset(torch.arange(42)), batch_size=None, shuffle=True),
        images,
    ],
    ids=["workers", "persistent", "batch_sampler", "no_batches", "memory"],
)
def test_any_loader_over_a_map_style_data_set(tmp_path: Path, loader: Callable[[], Any]) -> None:
    notes = run(tmp_path, loader, 2, deal=Deal.ONE_EACH)
    assert notes.samples(2) == every(42)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_shuffled_epoch_has_the_order_of_epoch_shuffle(tmp_path: Path, workers: int) -> None:
    def loader() -> DataLoader[Any]:
        data = TensorDataset(torch.arange(40))
        return DataLoader(data, batch_size=4, sampler=EpochShuffle(data))

    notes = run(tmp_path, loader, workers, deal=Deal.IN_TURNS)
    shuffle = EpochShuffle(range(40))
    expected = []
    for epoch in (0, 1):
        shuffle.set_epoch(epoch)
        order = list(shuffle)
        expected += [order[at : at + 4] for at in range(0, 40, 4)]
    assert in_order(notes, workers) == expected


def test_a_sequential_epoch_keeps_its_order_and_drops_the_last(tmp_path: Path) -> None:
    notes = run(tmp_path, lambda: numbers(27, drop_last=True), 3, deal=Deal.IN_TURNS, max_epochs=1)
    assert in_order(notes, 3) == [list(range(at, at + 4)) for at in range(0, 24, 4)]


def test_a_weighted_sampler_draws_the_same_in_every_worker(tmp_path: Path) -> None:
    def loader(generator: torch.Generator | None = None) -> DataLoader[Any]:
        return numbers(40, sampler=WeightedRandomSampler(range(40), 40, generator=generator))

    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    two = run(folders[0], loader, 2, deal=Deal.IN_TURNS)
    four = run(folders[1], lambda: loader(torch.Generator()), 4, deal=Deal.IN_TURNS)
    assert in_order(two, 2) == in_order(four, 4)
    assert in_order(two, 2)[:10] != in_order(two, 2)[10:]
    assert two.samples(2)[0][0] == 0


def test_one_worker_draws_as_a_plain_trainer_does(tmp_path: Path) -> None:
    one = run(tmp_path, lambda: numbers(40, shuffle=True), 1)
    plain = tmp_path / "plain"
    plain.mkdir()
    seed_everything(5, verbose=False)
    notes = Notes(plain)
    made = Trainer(
        accelerator="cpu", devices=1, max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=plain,
    )  # fmt: skip
    made.fit(Net(notes.writer(0)), numbers(40, shuffle=True), numbers(1))
    assert one.read("train", 0) == notes.read("train", 0)
