"""A virtual clock: the scheduler sets the time, and transfers and servers take as long as declared."""

import math
import random
from collections.abc import Callable, Mapping
from typing import Final

from scalebook.training.engine.rules.clock_settings import (
    RECORDED,
    Bandwidth,
    ClockSettings,
    Distribution,
    Link,
    Seconds,
)
from scalebook.training.engine.worker_clock import T, Until, Wait, Waits

Draw = Callable[[random.Random, Distribution], float]


def _lognormal(draw: random.Random, values: Distribution) -> float:
    if not values.mean or not values.cv:
        return values.mean
    variance = math.log1p(values.cv * values.cv)  # of the logarithm
    return draw.lognormvariate(math.log(values.mean) - variance / 2, math.sqrt(variance))


def _gamma(draw: random.Random, values: Distribution) -> float:
    if not values.mean or not values.cv:
        return values.mean
    shape = values.cv**-2
    return draw.gammavariate(shape, values.mean / shape)


def _uniform(draw: random.Random, values: Distribution) -> float:
    half = math.sqrt(3) * (values.cv or 0.0)
    return values.mean * max(0.0, 1 + half * (2 * draw.random() - 1))


def _recorded(draw: random.Random, values: Distribution) -> float:
    return values.values[int(draw.random() * len(values.values))]


DRAWS: Final[Mapping[str, Draw]] = {
    RECORDED: _recorded,
    "uniform": _uniform,
    "exponential": lambda draw, values: values.mean * draw.expovariate(1.0),
    "lognormal": _lognormal,
    "gamma": _gamma,
}


class Draws:
    """Random numbers from a stream for each worker and purpose, so that no draw depends on any other."""

    def __init__(self, seed: int | str) -> None:
        self._seed = seed
        self._streams: dict[tuple[str, int], random.Random] = {}

    def value(self, values: float | Distribution, purpose: str, worker: int) -> float:
        """The next value of a distribution; a number stays itself."""
        if not isinstance(values, Distribution):
            return values
        key = purpose, worker
        if key not in self._streams:
            self._streams[key] = random.Random(f"{self._seed}/{purpose}/{worker}")
        return DRAWS[values.kind](self._streams[key], values)


class Line:
    """A queue that serves one request after the other, first come first served."""

    def __init__(self) -> None:
        self.free_s = 0.0
        """When all requests so far are done."""
        self.busy_s = 0.0
        """Seconds of work requested."""
        self.waited_s = 0.0
        """Seconds that requests have waited before they began."""

    def serve(self, now_s: float, seconds: float) -> float:
        """Request `seconds` of work at `now_s`; returns when it is done."""
        begun_s = max(self.free_s, now_s)
        self.free_s = begun_s + seconds
        self.busy_s += seconds
        self.waited_s += begun_s - now_s
        return self.free_s


class SimulatedClock:
    """A `Clock` for workers that one process simulates. ArgumentError for bad settings."""

    def __init__(self, settings: ClockSettings, workers: int, shards: int = 1, seed: int = 0) -> None:
        settings.check(workers)
        self.settings, self.time_s = settings, 0.0
        self.servers = [Line() for _ in range(shards)]
        self.inward, self.outward = Line(), Line()
        """The servers' link, in both directions."""
        self._from: dict[int, Line] = {}
        self._to: dict[int, Line] = {}
        self._seed = seed
        self._draws = Draws(seed)

    def resume(self, seconds: float) -> None:
        """Before anything has happened: set the time of the run that is resumed; draws then differ from that run's
        first ones."""
        self.time_s = seconds
        self._draws = Draws(f"{self._seed} from {seconds!r}")

    def now(self) -> float:
        return self.time_s

    def play(self, waits: Waits[T]) -> T:
        """Run a coroutine that need not wait at this moment; the scheduler runs all others."""
        try:
            while True:
                wait = next(waits)
                assert isinstance(wait, Wait), "only the scheduler can wait for a transfer"
                assert wait.ready(), f"{wait.awaited()}, but only the scheduler can wait"
        except StopIteration as end:
            result: T = end.value
            return result

    def gradient_s(self, worker: int) -> float:
        """Seconds of its next gradient; of a group's, whose machines draw independently in each phase."""
        factor, group = self.settings.stragglers.get(worker, 1.0), self.settings.group
        if group is None:
            return factor * self._machine_s(worker)
        slowest_s = sum(max(self._machine_s(worker) for _ in range(group.machines)) for _ in range(group.waits))
        return factor * (slowest_s / (group.machines * group.waits) + group.sending_s)

    def _machine_s(self, worker: int) -> float:
        """Seconds in which one machine would compute all of the gradient."""
        return self._draws.value(self.settings.gradient_s, "gradient", worker)

    def travelling(self, workers: int) -> int:
        """1, the one being computed, if pushes take no time."""
        settings = self.settings
        links = [settings.link, settings.server_link, *settings.links.values()]
        return 1 if settings.server_s == 0 and all(link in (Link(), Link(0)) for link in links) else workers

    def sends(self, worker: int, nbytes: int) -> Waits[None]:
        yield from self._until(self.time_s + self._latency(worker, "out"))
        yield from self._until(self._transfer(worker, nbytes, self.inward, "out"))
        yield from self._until(max(line.serve(self.time_s, self._server_s(worker)) for line in self.servers))

    def receives(self, worker: int, nbytes: int) -> Waits[None]:
        done_s = self._transfer(worker, nbytes, self.outward, "in")
        yield from self._until(done_s + self._latency(worker, "in"))

    def travels(self, sender: int, receiver: int, nbytes: int, messages: int = 1) -> float:
        """Both ends' links work at the same time, each for one message after the other in a direction; the slower one
        decides, and both have a latency."""
        outward, inward = self._from.setdefault(sender, Line()), self._to.setdefault(receiver, Line())
        sent_s = self._seconds(nbytes, self._link(sender).bandwidth, "bandwidth out", sender)
        received_s = self._seconds(nbytes, self._link(receiver).bandwidth, "bandwidth in", receiver)
        latency_s = self._own_latency(sender, "out") + self._own_latency(receiver, "in")
        return messages * latency_s + max(outward.serve(self.time_s, sent_s), inward.serve(self.time_s, received_s))

    def arrives(self, at_s: float) -> Waits[None]:
        yield from self._until(at_s)

    def _until(self, at_s: float) -> Waits[None]:
        if at_s > self.time_s:
            yield Until(at_s)

    def _transfer(self, worker: int, nbytes: int, line: Line, way: str) -> float:
        """When the last byte has passed both links; they work at the same time, so the slower one decides."""
        shared_s = self._seconds(nbytes, self.settings.server_link.bandwidth, f"server bandwidth {way}", worker)
        own_s = self._seconds(nbytes, self._link(worker).bandwidth, f"bandwidth {way}", worker)
        return max(line.serve(self.time_s, shared_s), self.time_s + own_s)

    def _seconds(self, nbytes: int, bandwidth: Bandwidth, purpose: str, worker: int) -> float:
        return 0.0 if bandwidth is None else nbytes / self._draws.value(bandwidth, purpose, worker)

    def _latency(self, worker: int, way: str) -> float:
        there: Seconds = self.settings.server_link.latency_s
        return self._own_latency(worker, way) + self._draws.value(there, f"server latency {way}", worker)

    def _own_latency(self, worker: int, way: str) -> float:
        return self._draws.value(self._link(worker).latency_s, f"latency {way}", worker)

    def _server_s(self, worker: int) -> float:
        return self._draws.value(self.settings.server_s, "server", worker)

    def _link(self, worker: int) -> Link:
        return self.settings.links.get(worker, self.settings.link)
