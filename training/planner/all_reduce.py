"""Strategies without a server, in closed form: an update takes the gradients of all workers, summed by an all-reduce.

`ddp`: gradients travel in buckets, as soon as the backward pass has made them. `fsdp`: each worker holds a share of
parameters, gradients and optimizer state; parameters are gathered for the forward and for the backward pass, gradients
reduced to shares. Nothing is drawn, so that 512 workers take as long as one.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from typing_extensions import override

from scalebook.training.engine.rules import Link
from scalebook.training.planner.answers import Point
from scalebook.training.pricing import Profile, links, reductions

FORWARD: Final = 1 / 3
"""The forward pass's share of a gradient's time, if not measured: a backward pass makes twice the multiply-adds."""


class WithoutServer(ABC):
    """A strategy without a server, which takes the place of a server's rule in a question."""

    synchronous: ClassVar[bool] = True

    @property
    @abstractmethod
    def name(self) -> str:
        """As it is written in a question."""

    def allows(self, workers: int) -> bool:
        """Whether there can be so many workers."""
        return True

    @abstractmethod
    def play(self, profile: Profile, workers: int, network: links.Network, alone: bool, seed: int = 0) -> Point:
        """In steady state. `alone`: on one machine, whose cores all workers share; else each node has its own."""

    @abstractmethod
    def memory(self, weights: float, state: float, workers: int) -> float:
        """Bytes of a worker's weights, gradients and optimizer state."""

    def changes(self, profile: Profile) -> list[tuple[str, "WithoutServer"]]:
        """What a person could write instead for more samples a second, in words."""
        return []


@dataclass(frozen=True)
class AllReduce(WithoutServer):
    """An all-reduce of gradients. `bucket_mb`: DDP's `bucket_cap_mb`; `parts`: 2 for half of the bytes; `gathers`: each
    worker sends its frame, as large as the profile's push, to all others, since such frames cannot be summed."""

    sharded: bool = False
    bucket_mb: float = reductions.BUCKET_MB
    parts: float = 1.0
    gathers: bool = False

    @property
    @override
    def name(self) -> str:
        return "fsdp" if self.sharded else "ddp"

    @override
    def play(self, profile: Profile, workers: int, network: links.Network, alone: bool, seed: int = 0) -> Point:
        """See `WithoutServer`; nothing is drawn."""
        slow = profile.shared_by(workers) if alone else profile
        turns = math.ceil(workers / slow.cores) if alone and slow.cores else 1
        last_s = (
            reductions.largest(slow.gradient_s, workers, list(slow.stragglers.values()))
            + (turns - 1) * slow.gradient_mean_s
        )
        update_s = slow.update_s
        if workers == 1:
            travels_s, shown_s = 0.0, last_s
        elif self.sharded:
            travels_s, shown_s = self._sharded(slow, workers, network, last_s)
            update_s /= workers
        else:
            travels_s, shown_s = self._buckets(slow, workers, network, last_s)
            update_s *= workers if self.gathers else 1  # each decodes all frames
        step_s = shown_s + update_s
        compute = (turns * slow.gradient_mean_s + update_s) / step_s
        idle = max(0.0, last_s - turns * slow.gradient_mean_s) / step_s
        busy = min(1.0, travels_s / step_s)
        return Point(
            workers, 1 / step_s, workers * profile.batch_size / step_s, compute, max(0.0, 1 - compute - idle), idle,
            0.0, 0, 0.0, 0.0, 0.0, busy, busy, busy, busy,
        )  # fmt: skip

    @override
    def memory(self, weights: float, state: float, workers: int) -> float:
        """Bytes of a worker's weights, gradients and optimizer state. If sharded, its shares and two whole parts of the
        model, the one that computes and the next."""
        whole = 2 * weights + state
        return whole / workers + min(weights, 2e6 * self.bucket_mb) if self.sharded and workers > 1 else whole

    @override
    def changes(self, profile: Profile) -> list[tuple[str, WithoutServer]]:
        """See `WithoutServer`."""
        if profile.sparse or self.parts != 1 or self.sharded or self.gathers:
            return []
        return [("codec: bf16, 1/2 of the bytes", replace(self, parts=2))]

    def _buckets(self, profile: Profile, workers: int, network: links.Network, last_s: float) -> tuple[float, float]:
        """Seconds in which buckets travel, and until the last of them is there."""
        free_s = travels_s = 0.0
        for ready, nbytes in buckets(profile, math.inf if self.gathers else self.bucket_mb):
            took_s = self._bucket_s(profile, workers, network, nbytes)
            free_s = max(free_s, (ready if profile.overlap else 1.0) * last_s) + took_s
            travels_s += took_s
        return travels_s, max(free_s, last_s)

    def _bucket_s(self, profile: Profile, workers: int, network: links.Network, nbytes: float) -> float:
        if self.gathers:
            return reductions.over(_slower(profile, workers, network), (workers - 1) * profile.push_bytes, workers - 1)
        return reductions.all_reduce_s(nbytes / self.parts, workers, network.link, profile)

    def _sharded(self, profile: Profile, workers: int, network: links.Network, last_s: float) -> tuple[float, float]:
        """One line carries gathers and reductions; a part of the model waits for its gather, the next one's is under
        way meanwhile. An update waits for the last reduction."""
        parts = list(buckets(profile, self.bucket_mb))
        whole = sum(nbytes for _, nbytes in parts) or 1.0
        line_s = now_s = travels_s = one_s = 0.0
        forward_s = FORWARD * last_s
        for backward in (False, True):
            for _, nbytes in parts:
                one_s = reductions.all_reduce_s(nbytes, workers, network.link, profile) / 2  # a gather is half of it
                begun_s = line_s if profile.overlap else max(line_s, now_s)
                line_s = begun_s + one_s
                now_s = max(now_s, line_s) + (last_s - forward_s if backward else forward_s) * nbytes / whole
                travels_s += one_s
                if backward:
                    line_s = max(line_s, now_s if not profile.overlap else begun_s) + one_s
                    travels_s += one_s
        return travels_s, max(now_s + one_s, line_s)


def _slower(profile: Profile, workers: int, network: links.Network) -> Link:
    """What joins workers of whom some are beyond the node."""
    node = profile.node
    return node.link if node is not None and workers <= node.workers else network.link


def buckets(profile: Profile, cap_mb: float) -> Iterator[tuple[float, float]]:
    """When each bucket is ready, as a share of a gradient's time, and its bytes; in order of readiness.

    As measured in a backward pass; if not measured, evenly over the last two thirds.
    """
    limit = 1e6 * min(reductions.FIRST_MB, cap_mb)
    if not profile.ready:
        done, whole = 0.0, profile.push_bytes
        while done < whole:
            size = min(limit, whole - done)
            done += size
            yield FORWARD + (1 - FORWARD) * done / whole, size
            limit = 1e6 * cap_mb
        return
    size = 0.0
    for place, (ready, nbytes) in enumerate(profile.ready):
        size += nbytes
        if size >= limit or place == len(profile.ready) - 1:
            yield ready, size
            size, limit = 0.0, 1e6 * cap_mb
