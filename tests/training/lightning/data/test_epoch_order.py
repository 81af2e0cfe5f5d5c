import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler, TensorDataset

from scalebook.training.lightning.data.epoch_order import EpochOrder
from scalebook.training.zoo.shuffle import EpochShuffle

DATA = TensorDataset(torch.arange(10))


@pytest.fixture(autouse=True)
def _seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "17")


def order(**settings: Any) -> EpochOrder:
    return EpochOrder(DataLoader(DATA, **settings), alone=False)


def shuffled(epoch: int) -> list[int]:
    return torch.randperm(10, generator=torch.Generator().manual_seed(17 + epoch)).tolist()


@pytest.mark.parametrize("settings", [{"shuffle": True}, {"sampler": EpochShuffle(DATA)}])
def test_a_shuffled_epoch_is_a_function_of_seed_and_epoch(settings: dict[str, Any]) -> None:
    of = order(batch_size=4, **settings)
    for epoch in (0, 3):
        assert list(of(epoch)) == [shuffled(epoch)[:4], shuffled(epoch)[4:8], shuffled(epoch)[8:]]


@pytest.mark.parametrize(("drop_last", "batches"), [(False, 3), (True, 2)])
def test_a_sequential_epoch_has_the_order_of_the_data(drop_last: bool, batches: int) -> None:
    of = order(batch_size=4, drop_last=drop_last)
    assert list(of(2)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]][:batches]
    assert len(of(2)) == batches
    assert of(2)[:1] == [[0, 1, 2, 3]]
    with pytest.raises(IndexError):
        of(2)[batches]


def test_without_batches_there_is_an_index_each() -> None:
    assert list(order(batch_size=None, shuffle=True)(1)) == shuffled(1)


class Everywhere(Sampler[int]):
    """Draws from every source of random numbers there is."""

    def __init__(self) -> None:
        self.generator, self.epoch = torch.Generator(), 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[int]:
        yield random.randrange(10**6)
        yield int(np.random.randint(10**6))
        yield int(torch.randint(10**6, (1,)))
        yield int(torch.randint(10**6, (1,), generator=self.generator))
        yield self.epoch


def test_any_other_sampler_is_drawn_the_same_in_every_worker_and_spends_no_random_numbers() -> None:
    draws = []
    for worker in (0, 1):
        torch.manual_seed(worker)
        random.seed(worker)
        np.random.seed(worker)
        before = torch.get_rng_state(), random.getstate()
        of = order(batch_size=5, sampler=Everywhere())
        if worker == 1:
            of(0)  # one that has seen other epochs before
        draws.append(list(of(4)))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1]
    assert draws[0] == draws[1]
    assert draws[0][0][4] == 4
    assert draws[0] != list(order(batch_size=5, sampler=Everywhere())(5))


def test_alone_the_loader_draws_as_it_would_without_us() -> None:
    loader = DataLoader(DATA, batch_size=4, sampler=RandomSampler(DATA))
    torch.manual_seed(3)
    expected = list(loader.batch_sampler)  # type: ignore[arg-type]  # it makes batches
    torch.manual_seed(3)
    of = EpochOrder(loader, alone=True)
    assert list(of(0)) == expected
    assert not of.is_known
    assert EpochOrder(DataLoader(DATA, sampler=EpochShuffle(DATA)), alone=True).is_known


def test_alone_goes_on_with_an_epoch_that_several_have_begun() -> None:
    of = EpochOrder(DataLoader(DATA, batch_size=4, shuffle=True), alone=True)
    of.seeded.add(2)
    assert of(2)[0] == shuffled(2)[:4]


class Liar(BatchSampler):
    def __init__(self) -> None:
        super().__init__(SequentialSampler(DATA), 5, drop_last=False)

    def __len__(self) -> int:
        return 3


def test_a_sampler_with_fewer_batches_than_it_says_is_refused() -> None:
    of = EpochOrder(DataLoader(DATA, batch_sampler=Liar()), alone=True)
    assert of(0)[1] == [5, 6, 7, 8, 9]
    with pytest.raises(ValueError, match="data: the loader's sampler reports 3 batches, but it yields 2"):
        of(0)[2]
