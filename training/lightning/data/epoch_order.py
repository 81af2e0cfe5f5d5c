"""The batches of an epoch: lists of sample indices, the same in every worker."""

import os
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final, overload

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler
from typing_extensions import override

from scalebook.training.lightning.package import isolate_rng
from scalebook.training.zoo import EpochShuffle, SkewedSampler

Indices = Any
"""What an index sampler yields: a list of indices for one batch, or whatever the user's own sampler yields."""
Batches = Sequence[Indices]
_KEPT: Final = 4
"""How many epochs' orders are cached: the worker's own, and those in which it takes over a dead worker's batches."""


class EpochOrder:
    """The batches of each epoch of a DataLoader over a data set with a length.

    A loader that shuffles (a RandomSampler without replacement) gets the order of `EpochShuffle`, a function of
    PL_GLOBAL_SEED and epoch alone; one that does not gets the data set's. Any other sampler or batch sampler is drawn
    whole, with torch's, numpy's and Python's random numbers seeded by seed + epoch (its own `generator` and `set_epoch`
    too), so it must depend on nothing else.

    `alone`: there is one worker, so the loader's own samplers are drawn, batch by batch, as without AsyncPS.
    """

    def __init__(self, loader: DataLoader[Any], alone: bool) -> None:
        self.loader, self._alone = loader, alone
        self.seeded: set[int] = set()  # epochs that several workers have begun, so that `alone` does not hold for them
        self._kept: dict[int, Batches] = {}

    def __call__(self, epoch: int) -> Batches:
        """The batches of an epoch; drawn once, in epochs' order if `alone`."""
        if epoch not in self._kept:
            while len(self._kept) >= _KEPT:
                del self._kept[min(self._kept)]
            self._kept[epoch] = self._draw(epoch)
        return self._kept[epoch]

    def enter(self, epoch: int) -> None:
        """Start an epoch: call `set_epoch` of a batch sampler, as Lightning does for samplers."""
        if self.loader.batch_sampler is not None:
            _set_epoch(self.loader.batch_sampler, epoch)

    @property
    def is_known(self) -> bool:
        """Whether the order is a function of seed and epoch, even if `alone`, so that a run can be resumed within an
        epoch."""
        return not self._alone or self.is_the_same_everywhere

    @property
    def is_the_same_everywhere(self) -> bool:
        """Whether any Trainer would draw the same order, with as many workers if it is `divided`."""
        return self._in_slices and type(self.loader.sampler) in (EpochShuffle, SequentialSampler, SkewedSampler)

    @property
    def divided(self) -> int:
        """The number of workers that the order depends on; 1 if on none."""
        sampler = self.loader.sampler
        return sampler.workers if isinstance(sampler, SkewedSampler) else 1

    @property
    def _in_slices(self) -> bool:
        source = index_sampler(self.loader)
        return source is self.loader.sampler or type(source) is BatchSampler

    def _samplers(self) -> list[Any]:
        source = index_sampler(self.loader)
        candidates = [self.loader.sampler, source, getattr(source, "sampler", None)]
        return list({id(sampler): sampler for sampler in candidates if sampler is not None}.values())

    def _draw(self, epoch: int) -> Batches:
        source, seed = index_sampler(self.loader), int(os.environ.get("PL_GLOBAL_SEED", "0")) + epoch
        if not self.is_known and epoch not in self.seeded:
            return _AsDrawn(source)
        order = _plain_order(self.loader.sampler, seed) if self._in_slices else None
        if order is not None and source is self.loader.sampler:  # no batches: an index at a time
            return _Slices(order, None, drop_last=False)
        if order is not None:
            return _Slices(order, source.batch_size, source.drop_last)
        with isolate_rng(include_cuda=False):
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed % 2**32)  # what a user's sampler may draw from
            random.seed(seed)
            for sampler in self._samplers():
                _set_epoch(sampler, epoch)
                if isinstance(generator := getattr(sampler, "generator", None), torch.Generator):
                    generator.manual_seed(seed)
            return list(source)


def _set_epoch(sampler: Any, epoch: int) -> None:
    if callable(set_epoch := getattr(sampler, "set_epoch", None)):
        set_epoch(epoch)


def index_sampler(loader: DataLoader[Any]) -> Any:
    """What the loader draws indices from: its batch sampler, or its sampler if it does not make batches."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


def _plain_order(sampler: Any, seed: int) -> torch.Tensor | range | None:
    """The order of all samples, or None for a sampler that we do not know."""
    if type(sampler) is SequentialSampler:
        return range(len(sampler))
    is_shuffle = type(sampler) is EpochShuffle or type(sampler) is RandomSampler
    if is_shuffle and not sampler.replacement and len(sampler) == len(sampler.data_source):
        return torch.randperm(len(sampler), generator=torch.Generator().manual_seed(seed))
    return None


class _Batches(Sequence[Indices], ABC):
    """The batches of one epoch, made when they are asked for."""

    _count: int

    @abstractmethod
    def batch(self, index: int) -> Indices:
        """The batch at `index`, from 0 to below the length."""

    @override
    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Indices: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Indices]: ...
    @override
    def __getitem__(self, index: int | slice) -> Indices | Sequence[Indices]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self.batch(index)


class _Slices(_Batches):
    """Batch i is order[i * size : (i + 1) * size], the last one smaller unless dropped; an index each without size."""

    def __init__(self, order: torch.Tensor | range, size: int | None, drop_last: bool) -> None:
        self._order, self._size = order, size
        full, rest = divmod(len(order), size or 1)
        self._count = full + bool(rest and not drop_last)

    @override
    def batch(self, index: int) -> Indices:
        if self._size is None:
            return int(self._order[index])
        part = self._order[index * self._size : (index + 1) * self._size]
        return part.tolist() if isinstance(part, torch.Tensor) else list(part)


class _AsDrawn(_Batches):
    """The batches of a sampler, drawn when they are needed and not before."""

    def __init__(self, source: Any) -> None:
        self._count = len(source)
        self._source: Iterator[Indices] = iter(source)
        self._drawn: list[Indices] = []

    @override
    def batch(self, index: int) -> Indices:
        while len(self._drawn) <= index:
            try:
                self._drawn.append(next(self._source))
            except StopIteration:
                raise ValueError(
                    f"data: the loader's sampler reports {self._count} batches, but it yields {len(self._drawn)}."
                ) from None
        return self._drawn[index]
