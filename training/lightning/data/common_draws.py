"""Random numbers that all workers draw alike, for the order of data that each then takes its part of."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from scalebook.training.lightning.package import has_iterable_dataset
from scalebook.training.lightning.random_streams import cpu_streams, seed_of
from scalebook.training.zoo import EpochShuffle, SkewedSampler

_COMMON: Final = -1
_SEEDED: Final = (DistributedSampler, SequentialSampler, EpochShuffle, SkewedSampler)
"""Samplers that draw nothing from the process's random numbers."""


class CommonDraws:
    """The common random numbers of one loader. The workers' own are not changed."""

    def __init__(self) -> None:
        self._streams = cpu_streams()
        self._states = [stream.of_worker(_COMMON) for stream in self._streams]

    def __reduce__(self) -> tuple[Any, ...]:
        return CommonDraws, ()

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """In this block, draw from them."""
        own = [stream.state() for stream in self._streams]
        for stream, state in zip(self._streams, self._states, strict=True):
            stream.load(state)
        try:
            yield
        finally:
            self._states = [stream.state() for stream in self._streams]
            for stream, state in zip(self._streams, own, strict=True):
                stream.load(state)

    def through(self, items: Iterator[Any]) -> Iterator[Any]:
        """The same items, each made in such a block."""
        while True:
            with self.drawn():
                item = next(items, self)
            if item is self:
                return
            yield item


class _Alike:
    """An iterable that draws from `CommonDraws`; in all else, the one that it replaces."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._draws = inner, CommonDraws()

    def __iter__(self) -> Iterator[Any]:
        with self._draws.drawn():
            items = iter(self._inner)
        return self._draws.through(items)

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        if name in ("_inner", "_draws"):  # while being copied
            raise AttributeError(name)
        return getattr(self._inner, name)


class _AlikeStream(_Alike, IterableDataset[Any]):
    """Such a data set."""


def order_alike(loader: object, worker: int) -> None:
    """Let this worker's copy of a loader bring the same order as the others', if its samplers or its stream
    draw from the process's random numbers: the user divides by rank what they return, and workers draw other numbers
    from the start of training on.

    Loader processes of a data set with a length get seeds of their own in each worker; those of a stream the same.
    """
    if not isinstance(loader, DataLoader):
        return
    if has_iterable_dataset(loader):
        if loader.generator is None:
            loader.generator = torch.Generator().manual_seed(seed_of(_COMMON))
        if loader.num_workers == 0 and not isinstance(loader.dataset, _AlikeStream):
            object.__setattr__(loader, "dataset", _AlikeStream(loader.dataset))  # a DataLoader guards its attributes
        return
    if loader.generator is None and loader.num_workers and worker:
        loader.generator = torch.Generator().manual_seed(seed_of(worker, "torch loader"))
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    draws_nothing = type(sampler) in _SEEDED and type(loader.batch_sampler) in (BatchSampler, type(None))
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    if not draws_nothing and not isinstance(getattr(loader, name), _Alike):
        object.__setattr__(loader, name, _Alike(getattr(loader, name)))
