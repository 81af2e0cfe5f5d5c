"""What a step of virtual workers costs beside a step of one process without a parameter server.

`python -m benchmarks.virtual`: the perceptron of `engine_task` (669,706 parameters), SGD, one thread, in turn. Process
CPU time, best of the rounds; ratios are within one run. All keep the memory that a step frees, as a worker's process
does.

`floor` is the cost of the caches alone: one process without a parameter server that computes from as many versions in
turn as the virtual workers hold, and applies each gradient as many gradients later as travel there.
"""

import argparse
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from statistics import median_high as median
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy
from typing_extensions import override

from benchmarks.engine_task import BATCH, LEARNING_RATE, SAMPLES, make_optimizer, perceptron, samples
from scalebook.training.engine import Settings, SharedRun
from scalebook.training.engine.rules.clock_settings import ClockSettings, Distribution, Link
from scalebook.training.engine.rules.update_rules import RULES
from scalebook.training.engine.sim import ModelMultiplexer, SimulatedClock, SimulatedWorkers
from scalebook.training.engine.worker_clock import Waits
from scalebook.training.lightning.processes.forked import keep_what_is_freed
from scalebook.training.planner.play import EndlessWork

ROUNDS: Final = 5
TIMING: Final = ClockSettings(
    Distribution("gamma", 0.1, 0.2), server_s=1e-4, link=Link(1e-4, 1.25e9), server_link=Link(0.0, 1.25e10)
)
Gradient = Callable[[], None]


def gradient_of(model: Module) -> Gradient:
    """A function that computes forward and backward of the next batch."""
    inputs, labels = samples(0)
    starts = cycle(range(0, SAMPLES, BATCH))

    def compute() -> None:
        start = next(starts)
        loss: Tensor = cross_entropy(model(inputs[start : start + BATCH]), labels[start : start + BATCH])
        loss.backward()  # type: ignore[no-untyped-call]

    return compute


def plain() -> Callable[[], None]:
    """A function that makes a step of one process."""
    model = perceptron()
    optimizer, gradient = make_optimizer(model), gradient_of(model)

    def step() -> None:
        optimizer.zero_grad()
        gradient()
        optimizer.step()

    return step


class Traffic(NamedTuple):
    """What virtual workers hold at a moment: distinct versions, gradients that travel, gradients in an update."""

    versions: int
    travelling: int
    per_update: int


def floor(traffic: Traffic) -> Callable[[], None]:
    """A function that makes a step of one process with so much traffic through its caches."""
    model = perceptron()
    parameters, gradient = list(model.parameters()), gradient_of(model)
    versions = [[p.detach().clone() for p in parameters] for _ in range(traffic.versions)]
    travelling: deque[tuple[int, list[Tensor]]] = deque()
    total: list[Tensor] = []
    gathered = computed = newest = 0

    @torch.no_grad()
    def apply(base: int, gradients: list[Tensor]) -> None:
        nonlocal total, gathered, newest
        gathered += 1
        if total:
            for mine, new in zip(total, gradients, strict=True):
                mine.add_(new)
        total = total or gradients
        if gathered < traffic.per_update:
            return
        for old, new, mean in zip(versions[newest], versions[base], total, strict=True):
            torch.add(old, mean.div_(gathered) if gathered > 1 else mean, alpha=-LEARNING_RATE, out=new)
        total, gathered, newest = [], 0, base

    def step() -> None:
        nonlocal computed
        base = computed // traffic.per_update % traffic.versions
        computed += 1
        for parameter, value in zip(parameters, versions[base], strict=True):
            parameter.data, parameter.grad = value, None
        gradient()
        travelling.append((base, [p.grad for p in parameters if p.grad is not None]))
        for parameter in parameters:
            parameter.grad = None
        if len(travelling) > traffic.travelling:
            apply(*travelling.popleft())

    return step


class Virtual(NamedTuple):
    """A step of the virtual worker whose turn it is, and what the workers hold."""

    step: Callable[[], None]
    traffic: Callable[[], Traffic]


class CountingClock(SimulatedClock):
    """Counts the pushes that travel."""

    pushes = 0

    @override
    def sends(self, worker: int, nbytes: int) -> Waits[None]:
        self.pushes += 1
        try:
            yield from super().sends(worker, nbytes)
        finally:
            self.pushes -= 1


@contextmanager
def virtual(workers: int, rule: str) -> Iterator[Virtual]:
    """So many virtual workers under a rule."""
    model = perceptron()
    multiplexer, gradient = ModelMultiplexer([make_optimizer(model)]), gradient_of(model)
    clock, settings = CountingClock(TIMING, workers), Settings(RULES[rule]())
    run = SharedRun(workers, settings, clock)
    all_of_them = SimulatedWorkers(run, clock, multiplexer.make, EndlessWork())
    all_of_them.begin_all()

    def step() -> None:
        worker = all_of_them.next()
        assert worker is not None
        multiplexer.switch_to(worker)
        gradient()
        multiplexer.hand_over(worker)
        all_of_them.push()

    def traffic() -> Traffic:
        held = {buffer for buffer in all_of_them.partitions[0].counters.shards[0].held.tolist() if buffer >= 0}
        return Traffic(len(held), clock.pushes, settings.rule.averaged(workers))

    yield Virtual(step, traffic)
    all_of_them.detach()
    run.close()


def milliseconds(step: Callable[[], None], steps: int) -> float:
    """Process CPU time of a step."""
    began = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - began) / steps * 1e3


def main() -> None:
    """Print a table of rules and workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--steps", type=int, default=200, help="of each round")
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_what_is_freed()
    print("rule      workers  plain ms  virtual ms  ratio  floor  versions  travel  join s")
    for rule in RULES:
        for workers in args.workers:
            print_cell(rule, workers, args.steps)


def print_cell(rule: str, workers: int, steps: int) -> None:
    """Measure and print one line of the table."""
    began = time.perf_counter()
    with virtual(workers, rule) as (step, traffic_now):
        joined_s = time.perf_counter() - began
        ours, theirs, lowest, seen = [], [], [], []
        alone = plain()
        for _ in range(2 * workers):  # all versions have been written once
            step()
            seen.append(traffic_now())
        usual = Traffic(*(median(values) for values in zip(*seen[workers:], strict=True)))
        bare = floor(usual)
        milliseconds(bare, 2 * workers)
        gc.freeze()
        for _ in range(ROUNDS):
            theirs.append(milliseconds(alone, steps))
            ours.append(milliseconds(step, steps))
            lowest.append(milliseconds(bare, steps))
    plain_ms = min(theirs)
    print(
        f"{rule:<9} {workers:>7}  {plain_ms:>8.3f}  {min(ours):>10.3f}  {min(ours) / plain_ms:>5.2f}  "
        f"{min(lowest) / plain_ms:>5.2f}  {usual.versions:>8}  {usual.travelling:>6}  {joined_s:>6.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
