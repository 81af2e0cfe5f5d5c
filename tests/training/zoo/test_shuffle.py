from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset, WeightedRandomSampler

from scalebook.training.zoo.shuffle import EpochShuffle, shuffled_by_epochs

DATA = TensorDataset(torch.arange(11))


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_the_order_is_that_of_one_distributed_worker(monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    ours = EpochShuffle(DATA)
    theirs: DistributedSampler[int] = DistributedSampler(DATA, num_replicas=1, rank=0, shuffle=True, seed=7)
    ours.set_epoch(epoch)
    theirs.set_epoch(epoch)
    assert list(ours) == list(theirs)


def test_seed_and_epoch_change_the_order_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = EpochShuffle(DATA)
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    first = list(sampler)
    torch.rand(3)
    assert list(sampler) == first
    sampler.set_epoch(1)
    second = list(sampler)
    monkeypatch.setenv("PL_GLOBAL_SEED", "8")
    sampler.set_epoch(0)
    assert list(sampler) == second  # torch's rule: seed + epoch
    assert first != second
    assert sorted(first) == sorted(second) == list(range(11))


def test_only_a_loader_that_shuffles_all_is_given_the_order_of_epochs() -> None:
    plain: DataLoader[Any] = DataLoader(DATA, batch_size=4, shuffle=True, drop_last=True)
    ordered = shuffled_by_epochs(plain)
    assert type(plain.sampler) is RandomSampler, "the user's own stays as it is"
    assert isinstance(ordered.sampler, EpochShuffle)
    assert [len(batch) for batch in ordered.batch_sampler] == [4, 4]  # type: ignore[union-attr]
    assert [index for batch in ordered.batch_sampler for index in batch] == list(ordered.sampler)[:8]  # type: ignore[union-attr]
    single = shuffled_by_epochs(DataLoader(DATA, batch_size=None, shuffle=True))
    assert single.batch_sampler is None
    assert isinstance(single.sampler, EpochShuffle)
    others: list[DataLoader[Any]] = [
        DataLoader(DATA, batch_size=4),
        DataLoader(DATA, batch_size=4, sampler=RandomSampler(DATA, replacement=True)),
        DataLoader(DATA, batch_size=4, sampler=RandomSampler(DATA, num_samples=6)),
        DataLoader(DATA, batch_size=4, sampler=WeightedRandomSampler([1.0] * 11, 11)),
    ]
    assert all(shuffled_by_epochs(other) is other for other in others)
