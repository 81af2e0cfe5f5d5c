import pytest
import torch
from torch.utils.data import DistributedSampler, TensorDataset

from scalebook.training.zoo.shuffle import EpochShuffle

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
