"""The order of the training samples: a function of seed and epoch alone."""

import copy
import os
from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler


class EpochShuffle(RandomSampler):
    """All samples in the order that torch's DistributedSampler gives to a single worker.

    So a run sees the same batches whatever the model draws from the global random numbers, a resumed run goes on with
    its epoch's order, and k workers with batch b see together what one worker with batch k * b sees: strategies are
    compared on the same data. Being a RandomSampler, Lightning replaces it by the distributed one where there are
    several workers. The seed is that of `seed_everything`, 0 without it; Lightning calls `set_epoch`.
    """

    def __init__(self, data_source: Sized) -> None:
        super().__init__(data_source)
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed + self.epoch))
        yield from order.tolist()


def shuffled_by_epochs(loader: DataLoader[Any]) -> DataLoader[Any]:
    """A copy of a loader made with `shuffle=True`, in the order of `EpochShuffle` and not in one that depends on what
    the process has drawn before. Any other loader is returned as it is: its sampler is the user's."""
    sampler: Any = loader.sampler
    batches: Any = loader.batch_sampler
    is_whole = type(sampler) is RandomSampler and not sampler.replacement
    if not is_whole or len(sampler) != len(sampler.data_source) or type(batches) not in (BatchSampler, type(None)):
        return loader
    ordered = copy.copy(loader)
    shuffle = EpochShuffle(sampler.data_source)
    object.__setattr__(ordered, "sampler", shuffle)  # a DataLoader guards its samplers against mistakes
    if batches is not None:
        object.__setattr__(ordered, "batch_sampler", BatchSampler(shuffle, batches.batch_size, batches.drop_last))
    return ordered
