"""Batches that a data set draws as a whole, and all of it as one batch."""

from collections.abc import Sized
from typing import Any, Protocol, TypeVar

from torch.utils.data import Dataset

Drawn = TypeVar("Drawn", covariant=True)


class _Batches(Sized, Protocol[Drawn]):
    """A data set that draws a whole batch at once."""

    def __getitems__(self, indices: list[int]) -> Drawn: ...


class Whole(Dataset[Drawn]):
    """A set of one element, which is all samples: with `batch_size=None` a loader of one batch, in every worker."""

    def __init__(self, samples: _Batches[Drawn]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Drawn:
        return self._samples.__getitems__(list(range(len(self._samples))))


def as_it_is(batch: Any) -> Any:
    """A `collate_fn` for a data set that draws whole batches."""
    return batch
