"""The task of `benchmarks/virtual_truth.py`, and the costs for its clock, measured by one worker in a short run.

The task is a small perceptron on scikit-learn's digits. The worker is alone in its run, under the cell's own rule and
host, so that it shows nothing of what several workers cost together. Beside it as many processes compute as further
workers would on other cores: these take caches, memory bandwidth and turbo from it. Two processes that take turns
measure the cost of waking up.
"""

import mmap
import statistics
import time
from functools import cache
from typing import Final, NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import Linear, Module, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from scalebook.training.engine import Settings, SharedRun, join, serve
from scalebook.training.engine.memory.region import WAIT, Event
from scalebook.training.engine.rules.clock_settings import ClockSettings, Distribution, Link
from scalebook.training.engine.rules.settings import HostName
from scalebook.training.engine.rules.update_rules import Rule, Sync
from scalebook.training.lightning.processes.run_workers import run_workers

LEARNING_RATE: Final = 0.02
DEADLINE_S: Final = 60.0
WARM_UP: Final = 20  # gradients that count nothing: the first ones take ten times as long
LEAST: Final = 2 * WARM_UP
BATCH: Final = 32


@cache
def images() -> tuple[Tensor, Tensor]:
    """Pixels float32 [1797, 64] in 0..1, labels int64."""
    digits = load_digits()
    return torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target, dtype=torch.int64)


def task(seed: int) -> tuple[Module, SGD]:
    """64-128-64-10, 17,226 parameters, and its optimizer."""
    torch.manual_seed(seed)
    model = Sequential(Linear(64, 128), ReLU(), Linear(128, 64), ReLU(), Linear(64, 10))
    return model, SGD(model.parameters(), lr=LEARNING_RATE)


class Cost(NamedTuple):
    """Seconds of one worker: from push to push without waiting and applying, with its sleep; their spread; applying one
    gradient; the extra wait for a server process, there and back; and the extra time of the next gradient after a wait
    for others."""

    gradient_s: float
    cv: float
    server_s: float
    way_s: float = 0.0
    woken_s: float = 0.0

    def clock(self, slow: float, workers: int, host: HostName) -> ClockSettings:
        """A clock of so many workers, the last of which takes `slow` times as long."""
        seconds = Distribution("gamma", self.gradient_s, self.cv) if self.cv else self.gradient_s
        return ClockSettings(
            seconds, {workers - 1: slow}, self.server_s, Link(self.way_s / 2), server_process=host == "process"
        )

    def words(self) -> str:
        """The costs as a line of the output, in milliseconds."""
        return (
            f"a gradient {1e3 * self.gradient_s:.2f} (cv {self.cv:.2f}), applying it {1e3 * self.server_s:.3f}, way to "
            f"a server and back {1e3 * self.way_s:.3f}, being woken {1e3 * self.woken_s:.3f} ms"
        )


def compute(model: Module, number: int) -> None:
    """Compute the gradient of batch `number`, which is then in the model's parameters."""
    pixels, labels = images()
    start = number * BATCH % (len(labels) - BATCH)
    for parameter in model.parameters():
        parameter.grad = None
    torch.autograd.backward(cross_entropy(model(pixels[start : start + BATCH]), labels[start : start + BATCH]))


def calibrate(rule: Rule, host: HostName, sleep_s: float, beside: int, seconds: float, woken_s: float = 0.0) -> Cost:
    """One worker that sleeps so long for each gradient, beside so many processes that do the same without a server."""
    run = SharedRun(1, Settings(Sync() if isinstance(rule, Sync) else rule, host=host))
    over = mmap.mmap(-1, mmap.PAGESIZE)

    def body(process: int) -> int:
        torch.set_num_threads(1)
        model, sgd = task(0)
        if process:
            return _compute(model, sleep_s, over)
        joined = join(run, run.member(0, DEADLINE_S), [sgd])
        (client,) = joined.clients
        joined.begin()
        number, until = 0, time.perf_counter() + seconds
        while time.perf_counter() < until or number < LEAST:
            compute(model, number)
            time.sleep(sleep_s)
            client.push()
            number += 1
        joined.finish()
        over[0] = 1
        return number

    def server(number: int) -> None:
        serve(run, number, DEADLINE_S, [task(0)[1]])

    try:
        pushes = run_workers(1 + beside, body, servers=run.servers, serve=server if run.servers else None, threads=1)[0]
        timings = run.timings()
        own, served = timings.workers[0], timings.server
        assert own is not None, "more pushes than are warm-up"
        assert served is not None
        waited_s = float(run.control.seconds[WAIT]) / pushes
        way_s = max(0.0, waited_s - served.mean) if host == "process" else 0.0
        return Cost(own.mean, own.cv, served.mean, way_s, woken_s if host == "inline" else 0.0)
    finally:
        run.close()


def _compute(model: Module, sleep_s: float, over: mmap.mmap) -> int:
    """Compute until `over`; returns the number of gradients."""
    number, until = 0, time.perf_counter() + DEADLINE_S
    while not over[0] and time.perf_counter() < until:
        compute(model, number)
        time.sleep(sleep_s)
        number += 1
    return number


def woken(sleep_s: float, seconds: float) -> float:
    """How much longer a turn takes, in seconds, when two processes take turns and wake each other by the engine's
    event, than a gradient of one that computes all the time."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    event, turn = Event(memoryview(memory)[:8]), memoryview(memory)[8:16].cast("q")

    def body(process: int) -> tuple[list[float], list[float]]:
        torch.set_num_threads(1)
        model, _ = task(0)
        alone: list[float] = []
        ends: list[float] = []
        if not process:
            alone = _gradients(model, sleep_s, seconds)
        until = time.perf_counter() + (2 if process else 1) * seconds
        while time.perf_counter() < until and turn[0] >= 0:
            event.wait(lambda: turn[0] in (process, -1), DEADLINE_S, lambda: f"process {process} waits for its turn")
            compute(model, len(ends))
            time.sleep(sleep_s)
            ends.append(time.monotonic())
            turn[0] = turn[0] if turn[0] < 0 else 1 - process
            event.wake()
        turn[0] = -1
        event.wake()
        return alone, ends

    (alone, first), (_, second) = run_workers(2, body, threads=1)
    ends = sorted(first + second)[WARM_UP:]
    each: float = (ends[-1] - ends[0]) / (len(ends) - 1)
    return max(0.0, each - statistics.fmean(alone))


def _gradients(model: Module, sleep_s: float, seconds: float) -> list[float]:
    """Seconds of each gradient, one after the other."""
    took, until = list[float](), time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        compute(model, len(took))
        time.sleep(sleep_s)
        took.append(time.perf_counter() - began)
    return took[WARM_UP:]
