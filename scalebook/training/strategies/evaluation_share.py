"""Validation and test data of workers in step: each batch of one process is one worker's, and none is counted twice."""

import copy
from collections.abc import Iterator
from typing import Any, Final

from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data.distributed import DistributedSampler

from scalebook.training.strategies.epoch_order import EpochOrder, Indices, index_sampler
from scalebook.training.strategies.lightning import Trainer, has_iterable_dataset, sized_len


class EvaluationShare:
    """One worker's batches, as the sampler of its loader; batch i of the data is worker i % workers'.

    All workers make the same number of rounds, with batches of one size in each, since a step may call collectives.
    Where there are fewer batches than workers left, those without one repeat a batch and do not count it. A smaller
    last batch has a round of its own.

    Args:
        limit: trainer.limit_val_batches or limit_test_batches: of the whole data, as in one process.
    """

    def __init__(self, loader: DataLoader[Any], worker: int, workers: int, limit: float) -> None:
        self._order, self._worker, self._workers = EpochOrder(loader, alone=False), worker, workers
        self._limit: Final = limit
        source: Any = index_sampler(loader)
        batches = len(source)
        self.batches = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
        """Of all workers."""
        in_slices = type(source) is BatchSampler
        rest = len(source.sampler) % source.batch_size if in_slices else 0
        self._smaller = int(rest > 0 and not source.drop_last and self.batches == batches)
        self.rounds = -(-(self.batches - self._smaller) // workers) + self._smaller
        self.samples = 0
        """That this worker counts in an epoch."""
        self._epoch = 0

    def counts(self, index: int) -> bool:
        """Whether this worker's batch at `index` is its own, and no repetition."""
        return self._place(index)[1]

    def _place(self, index: int) -> tuple[int, bool]:
        full = self.batches - self._smaller
        if self._smaller and index == self.rounds - 1:
            return self.batches - 1, self._worker == full % self._workers
        place = index * self._workers + self._worker
        return min(place, full - 1), place < full

    def __len__(self) -> int:
        """The rounds; so many that a fraction (trainer.limit_val_batches) of them is the rounds."""
        if isinstance(self._limit, int) or self._limit in (0.0, 1.0):
            return self.rounds
        length = self.rounds
        while int(length * self._limit) < self.rounds:
            length += 1
        return length

    def __iter__(self) -> Iterator[Indices]:
        self._order.enter(self._epoch)
        batches = self._order(self._epoch)
        self._epoch += 1
        own = [self._place(index) for index in range(self.rounds)]
        self.samples = sum(_size(batches[place]) for place, counts in own if counts)
        return iter([batches[place] for place, _ in own])


def _size(indices: Indices) -> int:
    return len(indices) if isinstance(indices, list | tuple) else 1


def share_of(trainer: Trainer, loader: Any, worker: int, workers: int) -> Any:
    """The loader with this worker's batches. As it is, if its data have no length or the user has divided them."""
    if (
        not trainer._accelerator_connector.use_distributed_sampler
        or not isinstance(loader, DataLoader)
        or has_iterable_dataset(loader)
        or sized_len(loader) is None
        or (isinstance(loader.sampler, DistributedSampler) and loader.sampler.num_replicas > 1)
    ):
        return loader
    limit = trainer.limit_test_batches if trainer.testing else trainer.limit_val_batches
    share = EvaluationShare(loader, worker, workers, limit)
    shared = copy.copy(loader)
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    for attribute, value in (("_iterator", None), (name, share)):
        object.__setattr__(shared, attribute, value)  # a DataLoader guards its samplers against mistakes
    return shared


def share_in(loader: Any) -> EvaluationShare | None:
    """What `share_of` has put into the loader, if it has."""
    share = index_sampler(loader) if isinstance(loader, DataLoader) else None
    return share if isinstance(share, EvaluationShare) else None
