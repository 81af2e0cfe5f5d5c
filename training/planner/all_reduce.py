"""Strategies without a server, in closed form: an update takes the gradients of all workers, summed by an all-reduce.

`ddp`: gradients travel in buckets, as soon as the backward pass has made them. `fsdp`: each worker holds a share of
parameters, gradients and optimizer state; parameters are gathered for the forward and for the backward pass, gradients
reduced to shares. Nothing is drawn, so that 512 workers take as long as one.
"""

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from typing_extensions import override

from scalebook.training.engine.rules.clock_settings import Distribution, Link, Seconds
from scalebook.training.planner.answer import Point
from scalebook.training.planner.links import Network
from scalebook.training.planner.profile import Profile, mean, times

FIRST_MB: Final = 1.0
"""Size of DDP's first bucket, small so that something travels early (torch.nn.parallel.DistributedDataParallel)."""
BUCKET_MB: Final = 25.0
"""Size of all other buckets, torch's default of `bucket_cap_mb`."""
FORWARD: Final = 1 / 3
"""The forward pass's share of a gradient's time, if not measured: a backward pass makes twice the multiply-adds."""
GRID: Final = 4000
"""Steps of the integral over the times of the last gradient."""


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
    def play(self, profile: Profile, workers: int, network: Network, alone: bool, seed: int = 0) -> Point:
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
    bucket_mb: float = BUCKET_MB
    parts: float = 1.0
    gathers: bool = False

    @property
    @override
    def name(self) -> str:
        return "fsdp" if self.sharded else "ddp"

    @override
    def play(self, profile: Profile, workers: int, network: Network, alone: bool, seed: int = 0) -> Point:
        """See `WithoutServer`; nothing is drawn."""
        slow = profile.shared_by(workers) if alone else profile
        turns = math.ceil(workers / slow.cores) if alone and slow.cores else 1
        last_s = largest(slow.gradient_s, workers, list(slow.stragglers.values())) + (turns - 1) * slow.gradient_mean_s
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

    def _buckets(self, profile: Profile, workers: int, network: Network, last_s: float) -> tuple[float, float]:
        """Seconds in which buckets travel, and until the last of them is there."""
        free_s = travels_s = 0.0
        for ready, nbytes in buckets(profile, math.inf if self.gathers else self.bucket_mb):
            took_s = self._bucket_s(profile, workers, network, nbytes)
            free_s = max(free_s, (ready if profile.overlap else 1.0) * last_s) + took_s
            travels_s += took_s
        return travels_s, max(free_s, last_s)

    def _bucket_s(self, profile: Profile, workers: int, network: Network, nbytes: float) -> float:
        if self.gathers:
            return _over(_slower(profile, workers, network), (workers - 1) * profile.push_bytes, workers - 1)
        return all_reduce_s(nbytes / self.parts, workers, network.link, profile)

    def _sharded(self, profile: Profile, workers: int, network: Network, last_s: float) -> tuple[float, float]:
        """One line carries gathers and reductions; a part of the model waits for its gather, the next one's is under
        way meanwhile. An update waits for the last reduction."""
        parts = list(buckets(profile, self.bucket_mb))
        whole = sum(nbytes for _, nbytes in parts) or 1.0
        line_s = now_s = travels_s = one_s = 0.0
        forward_s = FORWARD * last_s
        for backward in (False, True):
            for _, nbytes in parts:
                one_s = all_reduce_s(nbytes, workers, network.link, profile) / 2  # a gather is half of an all-reduce
                begun_s = line_s if profile.overlap else max(line_s, now_s)
                line_s = begun_s + one_s
                now_s = max(now_s, line_s) + (last_s - forward_s if backward else forward_s) * nbytes / whole
                travels_s += one_s
                if backward:
                    line_s = max(line_s, now_s if not profile.overlap else begun_s) + one_s
                    travels_s += one_s
        return travels_s, max(now_s + one_s, line_s)


def all_reduce_s(nbytes: float, workers: int, link: Link, profile: Profile) -> float:
    """Seconds of one all-reduce. Workers of one node reduce first, then nodes: 2 (n - 1) / n of the bytes within, as
    much between (Thakur, Rabenseifner, Gropp 2005)."""
    node = profile.node
    if node is None or node.workers == 1:
        return _flat_s(nbytes, workers, link, profile)
    local_workers = min(workers, node.workers)
    nodes = math.ceil(workers / node.workers)
    return _flat_s(nbytes, local_workers, node.link, profile) + _flat_s(nbytes, nodes, link, profile)


def _flat_s(nbytes: float, members: int, link: Link, profile: Profile) -> float:
    """Ring: 2 (n - 1) messages of 1 / n each (Patarasuk, Yuan 2009). Two trees: all bytes up and down, in parts that
    follow each other, through 2 log2(n) messages (Sanders, Speck, Traff 2009)."""
    if members == 1:
        return 0.0
    ring = _over(link, 2 * (members - 1) / members * nbytes, 2 * (members - 1))
    tree = _over(link, 2 * nbytes, 2 * math.ceil(math.log2(members)))
    return {"ring": ring, "tree": tree, "fastest": min(ring, tree)}[profile.all_reduce]


def _over(link: Link, nbytes: float, messages: int) -> float:
    bandwidth = link.bandwidth
    assert not isinstance(bandwidth, Distribution), "a profile's are numbers"
    return messages * mean(link.latency_s) + (0.0 if bandwidth is None else nbytes / bandwidth)


def _slower(profile: Profile, workers: int, network: Network) -> Link:
    """What joins workers of whom some are beyond the node."""
    node = profile.node
    return node.link if node is not None and workers <= node.workers else network.link


def buckets(profile: Profile, cap_mb: float) -> Iterator[tuple[float, float]]:
    """When each bucket is ready, as a share of a gradient's time, and its bytes; in order of readiness.

    As measured in a backward pass; if not measured, evenly over the last two thirds.
    """
    limit = 1e6 * min(FIRST_MB, cap_mb)
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


# --- the last of several gradients -----------------------------------------------------------------------------------


def largest(seconds: Seconds, workers: int, stragglers: Sequence[float] = ()) -> float:
    """The mean of the largest of `workers` independent draws, the first ones `stragglers` times as long."""
    factors = [*stragglers][:workers]
    factors += [1.0] * (workers - len(factors))
    if not isinstance(seconds, Distribution) or (not seconds.cv and seconds.kind != "exponential"):
        return max(factors) * mean(seconds)
    if workers == 1:
        return factors[0] * seconds.mean
    cv = 1.0 if seconds.kind == "exponential" else seconds.cv or 0.0
    top = max(factors) * seconds.mean * (1 + cv * (6 + 3 * math.log(workers)))
    # E[max] is the integral of 1 - F, where F is the product of all workers'
    kinds = {factor: factors.count(factor) for factor in factors}
    total = 0.0
    for step in range(GRID):
        value = (step + 0.5) * top / GRID
        below = 1.0
        for factor, count in kinds.items():
            below *= _below(times(seconds, factor), value) ** count
        total += (1 - below) * top / GRID
    return total


def _below(values: Seconds, value: float) -> float:
    """The share of draws below `value`."""
    assert isinstance(values, Distribution)
    spread = values.cv or 0.0
    if values.kind == "exponential":
        return 1 - math.exp(-value / values.mean)
    if values.kind == "uniform":
        half = math.sqrt(3) * spread
        return min(1.0, max(0.0, (value / values.mean - 1 + half) / (2 * half)))
    if values.kind == "lognormal":
        variance = math.log1p(spread * spread)
        return statistics.NormalDist(math.log(values.mean) - variance / 2, math.sqrt(variance)).cdf(math.log(value))
    shape = spread**-2
    return _gamma_below(shape, value * shape / values.mean)


def _gamma_below(shape: float, x: float) -> float:
    """The regularized lower incomplete gamma function: its series, or the continued fraction where that converges
    sooner (Press et al., Numerical Recipes, section 6.2)."""
    if x <= 0:
        return 0.0
    scale = math.exp(-x + shape * math.log(x) - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        n = shape
        while abs(term) > 1e-10 * abs(total):
            n += 1
            term *= x / n
            total += term
        return min(1.0, total * scale)
    tiny = 1e-300
    b = x + 1 - shape
    c, d = 1 / tiny, 1 / b
    h = d
    for i in range(1, 10_000):
        an = -i * (i - shape)
        b += 2
        d = an * d + b
        d = 1 / (d if abs(d) > tiny else tiny)
        c = b + an / c
        c = c if abs(c) > tiny else tiny
        h *= d * c
        if abs(d * c - 1) < 1e-10:
            break
    return max(0.0, 1 - scale * h)
