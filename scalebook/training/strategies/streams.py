"""Streams of several workers: divided by turns, unless the data set divides itself."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from scalebook.training.ps.worker.end import Meetings
from scalebook.training.strategies.lightning import rank_zero_info, sized_len

_NOTHING: Final = object()


class Stream:
    """One worker's part of a loader without a known length.

    The workers compare the first batch that each has drawn. If it is the same, the stream is divided by turns: worker i
    takes batches i, i + k, ... and draws the others in vain; so shuffle it by a seed, not by the process's random
    numbers. If it differs, the data set divides itself, as DDP wants it to (by the trainer's `global_rank`, by RANK and
    WORLD_SIZE in the environment), and each worker takes all that it is given. `meetings` is None where nobody compares
    (a server process, `use_distributed_sampler: false`). Nobody else can take the share of a worker that dies: it is
    lost for the run.
    """

    def __init__(self, loader: Iterable[Any], worker: int, workers: int, meetings: Meetings | None) -> None:
        self.loader, self._worker, self._workers, self._meetings = loader, worker, workers, meetings
        self._divides_itself = False
        self._begun: Iterator[Any] | None = None  # from its first batch on, which has been looked at

    def __iter__(self) -> Iterator[Any]:
        self._look()
        batches = iter(self.loader) if self._begun is None else self._begun  # a loader's iterator may have no truth
        self._begun = None
        return batches if self._divides_itself else islice(batches, self._worker, None, self._workers)

    def __len__(self) -> int:
        """This worker's batches; TypeError when unknown, or when only others have any: Lightning ends at 0."""
        self._look()
        length = sized_len(self.loader)
        if length is None:
            raise TypeError("a stream without a length")
        if length == 0 and not self._divides_itself:  # nobody has any
            return 0
        mine = length if self._divides_itself else -(-(length - self._worker) // self._workers)
        if mine <= 0:
            raise TypeError("a stream without a length")
        return mine

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # while being copied
            raise AttributeError(name)
        return getattr(self.loader, name)

    def _look(self) -> None:
        """Draw the first batch, once, and ask whether the other workers' first batch is the same."""
        meetings, self._meetings = self._meetings, None
        if meetings is None:
            return
        batches = iter(self.loader)
        first = next(batches, _NOTHING)
        self._begun = batches if first is _NOTHING else chain([first], batches)
        self._divides_itself = meetings.streams_differ(digest(first))
        if self._divides_itself:
            rank_zero_info(
                "The workers' training streams differ from the first batch on: the data set divides itself, and each "
                "worker takes all of its own. If it only shuffles, let it shuffle by the same seed in every worker."
            )


def digest(batch: Any) -> int:
    """A positive int64 hash of all tensors, arrays, numbers and texts in a batch, in order."""
    content = hashlib.blake2b(digest_size=7)
    for leaf in tree_leaves(batch):
        if isinstance(leaf, Tensor):
            content.update(f"{leaf.dtype}{list(leaf.shape)}".encode())
            content.update(leaf.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        elif isinstance(leaf, np.ndarray):
            content.update(leaf.tobytes())
        elif isinstance(leaf, str | bytes | int | float | bool | None):
            content.update(repr(leaf).encode())
        else:
            content.update(type(leaf).__qualname__.encode())
    return int.from_bytes(content.digest(), "big") + 1
