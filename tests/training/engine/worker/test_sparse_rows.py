"""Rows that are read where they lie, and when they are fetched instead."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter

from scalebook.training.engine.store.table_optimizer import mark_tables
from scalebook.training.engine.worker.sparse_rows import RowReaders, different, sources_of

BATCH = torch.tensor([[3, 1], [3, 4]])


class Lying:
    """Tables that are, at one look after the other, as `looks` says."""

    def __init__(self, *looks: int | None) -> None:
        self._looks: Iterator[int | None] = iter(looks)
        self.counted: list[tuple[int, int]] = []

    def unchanged(self, place: int) -> int | None:
        """The next of them."""
        assert place == 0
        return next(self._looks)

    def count(self, place: int, rows: int) -> None:
        """Notes it."""
        self.counted.append((place, rows))


@pytest.mark.parametrize(
    ("looks", "is_fetched"),
    [((7, 7), False), ((0, 0), False), ((None,), True), ((7, None), True), ((7, 8), True)],
    ids=["nobody wrote", "nor ever took back", "written since", "begun meanwhile", "taken back meanwhile"],
)
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_what_others_may_be_writing_is_fetched(
    kind: type[nn.Module], looks: tuple[int | None, ...], is_fetched: bool
) -> None:
    held = torch.arange(20.0).view(5, 4)  # of the version held; what lies there is 100 more
    is_bag = kind is nn.EmbeddingBag
    module = nn.EmbeddingBag(5, 4, sparse=True, mode="sum") if is_bag else nn.Embedding(5, 4, sparse=True)
    mark_tables(module)
    with torch.no_grad():
        module.weight.copy_(held + 100)
    fetched: list[list[int]] = []

    def rows(place: int, wanted: Tensor) -> Tensor:
        fetched.append(wanted.tolist())
        return held[wanted]

    lying = Lying(*looks)
    weight = module.weight
    assert isinstance(weight, Parameter)
    RowReaders(module, sources_of([weight], rows, lying))
    made = module(BATCH)
    base = held if is_fetched else held + 100
    assert torch.equal(made, base[BATCH].sum(1) if is_bag else base[BATCH])
    assert fetched == ([[1, 3, 4]] if is_fetched else [])
    assert lying.counted == ([] if is_fetched else [(0, 3)])
    made.sum().backward()
    assert weight.grad is not None
    assert weight.grad.coalesce().indices().tolist() == [[1, 3, 4]]


@pytest.mark.parametrize(("numbers", "count"), [([], 0), ([5], 1), ([2, 2, 2], 1), ([[4, 1], [1, 4]], 2)], ids=str)
def test_different_numbers_are_counted(numbers: list[int], count: int) -> None:
    assert different(torch.tensor(numbers, dtype=torch.int64)) == count
