"""A parameter server's points that need no play, since theory has them within 1 % of one: a single worker, and many
whose pushes or pulls saturate the servers or their link."""

from dataclasses import replace
from typing import Final

from scalebook.training.planning.answer import Point
from scalebook.training.planning.profile import mean
from scalebook.training.ps.policy.clock import ClockSettings, Distribution
from scalebook.training.ps.policy.rules import Async, Bounded, Rule, Sync

PLAYED: Final = 128
"""Workers from whose play more of them follow, where both saturate the same resource."""
SATURATED: Final = 0.985
"""Of the most updates/s that the busiest resource allows: what the lower bound of so many workers reaches at least.
Real ones, whose service scatters less than the bound assumes, are nearer."""


def one_worker(
    batch_size: int, rule: Rule, shards: int, clock: ClockSettings, push_bytes: float, pull_bytes: float
) -> Point | None:
    """It waits for nobody, so its times add up. None where draws meet: the largest of several has another mean."""
    plain = rule in (Async(), Sync()) or isinstance(rule, Bounded)
    if not plain or (shards > 1 and isinstance(clock.server_s, Distribution)):
        return None
    served = _services(clock, push_bytes, pull_bytes)
    gradient_s = clock.stragglers.get(0, 1.0) * mean(clock.gradient_s)
    alone = replace(clock, gradient_s=gradient_s)
    rate = 1 / (_away_s(alone, push_bytes, pull_bytes) + sum(served))
    busy = [rate * seconds for seconds in served]
    return Point(
        1, rate, rate * batch_size, rate * gradient_s, 1 - rate * gradient_s, 0.0, 0.0, 0, 0.0,
        busy[0], busy[0], busy[1], busy[1], busy[2], busy[2],
    )  # fmt: skip


def saturates(workers: int, rule: Rule, clock: ClockSettings, push_bytes: float, pull_bytes: float) -> bool:
    """Whether so many asynchronous workers use all of the busiest resource, within the reach of `stretched`: balanced
    job bounds of a closed network with a time to think (Zahorjan, Sevcik, Eager, Galler 1982)."""
    if workers <= PLAYED or rule != Async() or clock.stragglers:
        return False
    served = _services(clock, push_bytes, pull_bytes)
    most, whole = max(served), sum(served)
    think_s = _away_s(clock, push_bytes, pull_bytes)
    bound = workers / (whole + think_s + (workers - 1) * most / (1 + think_s / (workers * whole))) if whole else 0.0
    return bound * most >= SATURATED


def stretched(
    point: Point, workers: int, clock: ClockSettings, push_bytes: float, pull_bytes: float, batch_size: int
) -> Point:
    """So many workers who `saturates`, by the play of fewer: updates/s are those of the busiest resource, the shares of
    time follow from them (Little 1961), and all who are more stand in the same queues."""
    served = _services(clock, push_bytes, pull_bytes)
    rate = 1 / max(served)
    away = rate * _away_s(clock, push_bytes, pull_bytes)  # workers that stand in no queue
    queues = point.server_queue, point.in_queue, point.out_queue
    more = (workers - away) / sum(queues)
    compute = rate * mean(clock.gradient_s) / workers
    busy = [rate * seconds for seconds in served]
    return replace(
        point, workers=workers, updates_per_s=rate, samples_per_s=rate * batch_size, compute=compute,
        communicate=1 - compute, idle=0.0, staleness=workers - 1.0,
        staleness_p95=round(point.staleness_p95 * (workers - 1) / (point.workers - 1)),
        server_busy=busy[0], server_queue=more * queues[0], in_busy=busy[1], in_queue=more * queues[1],
        out_busy=busy[2], out_queue=more * queues[2],
    )  # fmt: skip


def _services(clock: ClockSettings, push_bytes: float, pull_bytes: float) -> tuple[float, float, float]:
    """Seconds of a shard's server, and of the servers' link towards them and away from them, for one gradient."""
    bandwidth = clock.server_link.bandwidth
    return mean(clock.server_s), _over(push_bytes, bandwidth), _over(pull_bytes, bandwidth)


def _away_s(clock: ClockSettings, push_bytes: float, pull_bytes: float) -> float:
    """Seconds of a gradient in which its worker meets no other: it computes, or a message is under way."""
    latency_s = 2 * (mean(clock.link.latency_s) + mean(clock.server_link.latency_s))
    shared = _services(clock, push_bytes, pull_bytes)[1:]
    own = [_over(nbytes, clock.link.bandwidth) for nbytes in (push_bytes, pull_bytes)]
    slower_s = sum(max(0.0, alone - meeting) for alone, meeting in zip(own, shared, strict=True))
    return mean(clock.gradient_s) + latency_s + slower_s


def _over(nbytes: float, bandwidth: float | Distribution | None) -> float:
    assert not isinstance(bandwidth, Distribution), "a profile's are numbers"
    return 0.0 if bandwidth is None else nbytes / bandwidth
