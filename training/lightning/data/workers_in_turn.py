"""The batches of several workers in one process: for each update that of worker 0, then that of worker 1 and so on."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler
from torch.utils.data.distributed import DistributedSampler
from typing_extensions import override

from scalebook.training.lightning.package import Trainer, _get_distributed_sampler, has_iterable_dataset, sized_len


class WorkersInTurn(Sampler[list[int]]):
    """A batch sampler of what each worker's batch sampler gives, one batch of each at a time; all have as many."""

    def __init__(self, workers: Sequence[BatchSampler]) -> None:
        self.workers = workers

    @property
    def sampler(self) -> "WorkersInTurn":
        """Whom Lightning tells the epoch."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """As of a DistributedSampler."""
        for worker in self.workers:
            assert isinstance(worker.sampler, DistributedSampler)
            worker.sampler.set_epoch(epoch)

    @override
    def __iter__(self) -> Iterator[list[int]]:
        for batches in zip(*self.workers, strict=True):
            yield from batches

    def __len__(self) -> int:
        return sum(map(len, self.workers))


def in_turn(trainer: Trainer, loader: object, workers: int) -> DataLoader[Any]:
    """A loader with the batches that Lightning would give so many workers of this one. ValueError, with key and remedy,
    for a loader that it would not divide."""
    if (
        not isinstance(loader, DataLoader)
        or has_iterable_dataset(loader)
        or sized_len(loader) is None
        or type(loader.batch_sampler) is not BatchSampler
        or isinstance(loader.sampler, DistributedSampler)
        or not trainer._accelerator_connector.use_distributed_sampler
    ):
        raise ValueError(
            f"data: virtual parts take the batches of {workers} workers from one DataLoader in turn, and this one has "
            "a batch sampler of its own, no length, or is divided already. Write a plain DataLoader, or host: inline."
        )
    batches, shuffles = loader.batch_sampler, isinstance(loader.sampler, RandomSampler)
    overfits: float = trainer.overfit_batches  # type: ignore[attr-defined]  # made by Lightning's data connector
    samplers = [
        _get_distributed_sampler(loader, shuffles, overfits, num_replicas=workers, rank=worker)
        for worker in range(workers)
    ]
    divided = copy.copy(loader)
    object.__setattr__(
        divided,
        "batch_sampler",
        WorkersInTurn([BatchSampler(each, batches.batch_size, batches.drop_last) for each in samplers]),
    )
    return divided
