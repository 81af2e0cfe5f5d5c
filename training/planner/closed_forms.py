"""A parameter server's points that need no simulation, since theory is within 1 % of one: a single worker, and many
whose pushes or pulls saturate the servers or their link."""

import math
from dataclasses import replace
from typing import Final

from scalebook.training.engine.rules import (
    Async,
    Bounded,
    ClockSettings,
    Communication,
    Distribution,
    Rule,
    Seconds,
    Sync,
)
from scalebook.training.planner.answers import Point
from scalebook.training.pricing import mean_s, reductions

ENOUGH: Final = 128
"""The number of workers from whose simulation larger numbers are derived, if both saturate the same resource."""
FEW: Final = ENOUGH // 4
"""A second number of workers: its rounds and those of ENOUGH show how rounds grow. Under a rule with a bound it is the
number that is simulated, LONG gradients each: how far workers are apart changes slowly."""
LONG: Final = 40
SATURATED: Final = 0.985
"""The share of the busiest resource's most updates/s that the lower bound for so many workers must reach. Real ones,
whose service scatters less than the bound assumes, are nearer."""

QUEUES: Final = 0.75
"""The least share of queues in a round of ENOUGH workers from which larger numbers are derived."""


def one_worker(
    batch_size: int, rule: Rule, shards: int, clock: ClockSettings, push_bytes: float, pull_bytes: float
) -> Point | None:
    """One worker waits for nobody, so its times add up. None if draws combine: the largest of several has another
    mean."""
    plain = rule in (Async(), Sync()) or isinstance(rule, Bounded)
    if not plain or (shards > 1 and isinstance(clock.server_s, Distribution)):
        return None
    served = _services(clock, push_bytes, pull_bytes)
    gradient_s = clock.stragglers.get(0, 1.0) * mean_s(clock.gradient_s)
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
    if not (rule == Async() or isinstance(rule, Bounded)):
        return False
    served = _services(clock, push_bytes, pull_bytes)
    most, whole = max(served), sum(served)
    think_s = _away_s(clock, push_bytes, pull_bytes)
    bound = workers / (whole + think_s + (workers - 1) * most / (1 + think_s / (workers * whole))) if whole else 0.0
    return bound * most >= SATURATED


def most_gradients(local: Communication, clock: ClockSettings, push_bytes: float, pull_bytes: float) -> float:
    """Gradients a second that the busiest of all shared resources allows, whatever else there is."""
    server_s, in_s, out_s = _services(clock, push_bytes, pull_bytes)
    needs_s = max(max(server_s, in_s) / local.every, out_s / (local.n_fetch if local.sums else local.every))
    return 1 / needs_s if needs_s else math.inf


def stretched(
    point: Point, workers: int, clock: ClockSettings, push_bytes: float, pull_bytes: float, batch_size: int
) -> Point:
    """The point of `workers` that saturate a resource, from the simulation of fewer: updates/s are those of the busiest
    resource, or as many as fewer make if a rule lets them wait for the slowest. The shares of time follow (Little
    1961): the additional workers stand in the same queues, or wait as large a part of their time."""
    served = _services(clock, push_bytes, pull_bytes)
    rate = point.updates_per_s if point.idle else 1 / max(served)
    away = rate * _away_s(clock, push_bytes, pull_bytes)  # workers that stand in no queue
    queues = point.server_queue, point.in_queue, point.out_queue
    more = (workers * (1 - point.idle) - away) / sum(queues)
    compute = rate * mean_s(clock.gradient_s) / workers
    busy = [rate * seconds for seconds in served]
    return replace(
        point, workers=workers, updates_per_s=rate, samples_per_s=rate * batch_size, compute=compute,
        communicate=1 - compute - point.idle, staleness=workers * (1 - point.idle) - 1,
        staleness_p95=round(point.staleness_p95 * (workers - 1) / (point.workers - 1)),
        server_busy=busy[0], server_queue=more * queues[0], in_busy=busy[1], in_queue=more * queues[1],
        out_busy=busy[2], out_queue=more * queues[2],
    )  # fmt: skip


def lengthened(fewer: Point, point: Point, workers: int, clock: ClockSettings) -> Point:
    """The point of `workers` whose rounds wait for all, from the simulations of fewer: what a round takes beside the
    last gradient (queues of pushes and pulls, latencies) grows by the same with each worker."""
    each_s = (_beside_s(point, clock) - _beside_s(fewer, clock)) / (point.workers - fewer.workers)
    more = workers - point.workers
    took_s = _last_s(workers, clock) + max(0.0, _beside_s(point, clock) + each_s * more)
    shorter = 1 / (took_s * point.updates_per_s)  # of a resource that each worker uses as long as before
    many = workers / point.workers
    busy = [min(1.0, many * shorter * share) for share in (point.server_busy, point.in_busy, point.out_busy)]
    compute = point.compute * shorter
    rest = (1 - compute) / (1 - point.compute) if point.compute < 1 else 1.0
    return replace(
        point, workers=workers, updates_per_s=1 / took_s, samples_per_s=point.samples_per_s * many * shorter,
        compute=compute, communicate=rest * point.communicate, idle=rest * point.idle, server_busy=busy[0],
        server_queue=many * point.server_queue, in_busy=busy[1], in_queue=many * point.in_queue, out_busy=busy[2],
        out_queue=many * point.out_queue,
    )  # fmt: skip


def waits_in_queues(point: Point, clock: ClockSettings) -> bool:
    """Whether a round consists of queues for the most part: then `lengthened` is within 1 %."""
    return _beside_s(point, clock) * point.updates_per_s >= QUEUES


def _beside_s(point: Point, clock: ClockSettings) -> float:
    return 1 / point.updates_per_s - _last_s(point.workers, clock)


def _last_s(workers: int, clock: ClockSettings) -> float:
    return reductions.largest(clock.gradient_s, workers)


def sum_of(seconds: Seconds, count: int) -> Seconds:
    """The sum of `count` independent draws; that of a gamma is a gamma."""
    if not isinstance(seconds, Distribution):
        return count * seconds
    cv = 1.0 if seconds.kind == "exponential" else seconds.cv or 0.0
    kind = "gamma" if seconds.kind == "exponential" else seconds.kind
    return Distribution(kind, count * seconds.mean, cv / math.sqrt(count))


def _services(clock: ClockSettings, push_bytes: float, pull_bytes: float) -> tuple[float, float, float]:
    """Seconds of a shard's server, and of the servers' link towards them and away from them, for one gradient."""
    bandwidth = clock.server_link.bandwidth
    return mean_s(clock.server_s), _over(push_bytes, bandwidth), _over(pull_bytes, bandwidth)


def _away_s(clock: ClockSettings, push_bytes: float, pull_bytes: float) -> float:
    """Seconds of a gradient in which its worker meets no other: it computes, or a message is under way."""
    latency_s = 2 * (mean_s(clock.link.latency_s) + mean_s(clock.server_link.latency_s))
    shared = _services(clock, push_bytes, pull_bytes)[1:]
    own = [_over(nbytes, clock.link.bandwidth) for nbytes in (push_bytes, pull_bytes)]
    slower_s = sum(max(0.0, alone - meeting) for alone, meeting in zip(own, shared, strict=True))
    return mean_s(clock.gradient_s) + latency_s + slower_s


def _over(nbytes: float, bandwidth: float | Distribution | None) -> float:
    assert not isinstance(bandwidth, Distribution), "a profile's are numbers"
    return 0.0 if bandwidth is None else nbytes / bandwidth
