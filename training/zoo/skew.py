"""Workers whose labels differ: each has its own part of the data, some labels often and others hardly at all."""

import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DistributedSampler, Sampler
from typing_extensions import override

LARGEST_SEED: Final = 2**32


class SkewedSampler(Sampler[int]):
    """All samples in an order in which batch i of an epoch is of worker i % workers, from its own part of the data.

    Each worker draws shares of the labels from a Dirichlet distribution with parameters alpha * (shares in the whole),
    and the workers pick their samples one each in turn by these shares; who has none left of a label picks among the
    others in the same proportion (Hsu, Qi, Brown 2019, section 3.1). So every sample belongs to one worker, for the
    whole run: a function of the seed of `seed_everything` (0 without it). A small alpha leaves a worker few labels, a
    large one the labels of the whole. Within its part a worker's samples have the order of `EpochShuffle`; with one
    worker it is that order.

    Args:
        labels: int64 [samples], classes counted from 0.
        batch_size: Samples of one worker's batch.
        alpha: Concentration of the Dirichlet distribution, above 0.

    `workers` is set by the strategy, which deals batches in turns; 1 if none does.
    """

    def __init__(self, labels: Tensor, batch_size: int, alpha: float) -> None:
        self.labels, self.batch_size, self.alpha = labels, batch_size, alpha
        self.workers, self.epoch = 1, 0
        self._owners: tuple[int, int, Tensor] | None = None  # of so many workers, by which seed

    def set_epoch(self, epoch: int) -> None:
        """Lightning and `EpochOrder` call it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.labels)

    @override
    def __iter__(self) -> Iterator[int]:
        parts = [torch.split(self.part(worker), self.batch_size) for worker in range(self.workers)]
        for turn in range(max(map(len, parts))):
            for batches in parts:
                if turn < len(batches):
                    yield from batches[turn].tolist()

    def part(self, worker: int) -> Tensor:
        """A worker's samples in the order of the epoch, int64 [its samples]."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(_seed() + self.epoch))
        return order[self.owners()[order] == worker]

    def owners(self) -> Tensor:
        """The worker of each sample, int64 [samples]."""
        seed = _seed()
        if self._owners is None or self._owners[:2] != (self.workers, seed):
            batches = np.arange(len(self)) // self.batch_size
            sizes = np.bincount(batches % self.workers, minlength=self.workers)
            self._owners = self.workers, seed, torch.from_numpy(divided(self.labels.numpy(), sizes, self.alpha, seed))
        return self._owners[2]


class SkewedShare(DistributedSampler[int]):
    """One process's part under strategies with a process group, which take a step together. Shorter parts begin again,
    as torch's DistributedSampler does, so that all have as many samples."""

    def __init__(self, whole: SkewedSampler, processes: int, rank: int) -> None:
        super().__init__(range(len(whole)), num_replicas=processes, rank=rank)  # type: ignore[arg-type]  # it wants the length
        self.whole = whole
        whole.workers = processes

    def __len__(self) -> int:
        return int(torch.bincount(self.whole.owners(), minlength=self.whole.workers).max())

    @override
    def __iter__(self) -> Iterator[int]:
        self.whole.set_epoch(self.epoch)
        part = self.whole.part(self.rank)
        yield from part.repeat(-(-len(self) // max(1, len(part))))[: len(self)].tolist()


def skewed(labels: Tensor, batch_size: int, alpha: float, trainer: Any = None) -> Sampler[int]:
    """The sampler of a training loader: the process's own part where a process group divides the work. `trainer` says
    which processes share a batch, if any do; without it each has its own."""
    whole = SkewedSampler(labels, batch_size, alpha)
    if not (dist.is_available() and dist.is_initialized()):
        return whole
    share = {"num_replicas": dist.get_world_size(), "rank": dist.get_rank()}
    if trainer is not None:
        share = getattr(trainer.strategy, "distributed_sampler_kwargs", share)
    return SkewedShare(whole, share["num_replicas"], share["rank"]) if share["num_replicas"] > 1 else whole


def divided(labels: np.ndarray, sizes: np.ndarray, alpha: float, seed: int) -> np.ndarray:
    """The worker of each sample, int64 [samples]. `sizes`: how many each worker gets, int64 [workers], all together as
    many as there are. numpy guarantees RandomState's stream, so it is the same in every version."""
    draw = np.random.RandomState(seed % LARGEST_SEED)
    classes, labels = np.unique(labels, return_inverse=True)
    stacks = [list(draw.permutation(np.flatnonzero(labels == label))) for label in range(len(classes))]
    left = np.array([len(stack) for stack in stacks])
    prior = left / left.sum()
    # of a very small alpha all shares can round to 0; such a worker has one label
    shares = draw.dirichlet(np.maximum(alpha * prior, np.finfo(float).tiny), len(sizes))
    empty = ~(shares.sum(1) > 0)
    shares[empty] = np.eye(len(classes))[draw.choice(len(classes), int(empty.sum()), p=prior)]
    owners, missing = np.empty(len(labels), dtype=np.int64), sizes.copy()
    bounds: dict[int, list[float]] = {}  # by worker, of the labels that are left
    while missing.any():
        pickers = np.flatnonzero(missing)
        missing[pickers] -= 1
        for worker, share in zip(pickers.tolist(), draw.random_sample(len(pickers)).tolist(), strict=True):
            if worker not in bounds:
                weights = shares[worker] * (left > 0)
                bounds[worker] = np.cumsum(weights if weights.sum() > 0 else left).tolist()
            label = bisect_right(bounds[worker], share * bounds[worker][-1])
            owners[stacks[label].pop()] = worker
            left[label] -= 1
            if not left[label]:
                bounds.clear()
    return owners


def _seed() -> int:
    return int(os.environ.get("PL_GLOBAL_SEED", "0"))
