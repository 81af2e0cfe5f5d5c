"""Seconds of what many workers do together: an all-reduce, and the last of several gradients."""

import math
import statistics
from collections.abc import Sequence
from typing import Final

from scalebook.training.engine.rules import Distribution, Link, Seconds
from scalebook.training.pricing.profile import Profile, mean_s, scaled_s

FIRST_MB: Final = 1.0
"""Size of DDP's first bucket, small so that something travels early (torch.nn.parallel.DistributedDataParallel)."""
BUCKET_MB: Final = 25.0
"""Size of all other buckets, torch's default of `bucket_cap_mb`."""
GRID: Final = 4000
"""Steps of the integral over the times of the last gradient."""


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
    ring = over(link, 2 * (members - 1) / members * nbytes, 2 * (members - 1))
    tree = over(link, 2 * nbytes, 2 * math.ceil(math.log2(members)))
    return {"ring": ring, "tree": tree, "fastest": min(ring, tree)}[profile.all_reduce]


def over(link: Link, nbytes: float, messages: int) -> float:
    """Seconds of bytes in so many messages, one after the other."""
    bandwidth = link.bandwidth
    assert not isinstance(bandwidth, Distribution), "a profile's are numbers"
    return messages * mean_s(link.latency_s) + (0.0 if bandwidth is None else nbytes / bandwidth)


# --- the last of several gradients -----------------------------------------------------------------------------------


def largest(seconds: Seconds, workers: int, stragglers: Sequence[float] = ()) -> float:
    """The mean of the largest of `workers` independent draws, the first ones `stragglers` times as long."""
    factors = [*stragglers][:workers]
    factors += [1.0] * (workers - len(factors))
    if not isinstance(seconds, Distribution) or (not seconds.cv and seconds.kind != "exponential"):
        return max(factors) * mean_s(seconds)
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
            below *= _below(scaled_s(seconds, factor), value) ** count
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
