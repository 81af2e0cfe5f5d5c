"""What a step of virtual workers costs beside a step of one process without a parameter server.

`python -m benchmarks.virtual`: the perceptron of `engine_task` (669,706 parameters), SGD, one thread, in turn.
Process CPU time, best of the rounds; the ratio is between the two of one run. Both keep the blocks that a step frees,
as a worker's process does.
"""

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Final

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy

from benchmarks.engine_task import BATCH, SAMPLES, make_optimizer, perceptron, samples
from scalebook.training.planning.play import Endless
from scalebook.training.ps import Settings, SharedRun
from scalebook.training.ps.clock.virtual import VirtualClock
from scalebook.training.ps.policy.clock import ClockSettings, Distribution, Link
from scalebook.training.ps.policy.rules import RULES
from scalebook.training.ps.worker.one_model import OneModel
from scalebook.training.ps.worker.virtual import VirtualWorkers
from scalebook.training.strategies.forked import keep_what_is_freed

ROUNDS: Final = 5
TIMING: Final = ClockSettings(
    Distribution("gamma", 0.1, 0.2), server_s=1e-4, link=Link(1e-4, 1.25e9), server_link=Link(0.0, 1.25e10)
)
Gradient = Callable[[], None]


def gradient_of(model: Module) -> Gradient:
    """Forward and backward of the next batch."""
    inputs, labels = samples(0)
    starts = cycle(range(0, SAMPLES, BATCH))

    def compute() -> None:
        at = next(starts)
        loss: Tensor = cross_entropy(model(inputs[at : at + BATCH]), labels[at : at + BATCH])
        loss.backward()  # type: ignore[no-untyped-call]

    return compute


def plain() -> Callable[[], None]:
    """A step of one process."""
    model = perceptron()
    optimizer, gradient = make_optimizer(model), gradient_of(model)

    def step() -> None:
        optimizer.zero_grad()
        gradient()
        optimizer.step()

    return step


@contextmanager
def virtual(workers: int, rule: str) -> Iterator[Callable[[], None]]:
    """A step of one of so many virtual workers, whose turn it is."""
    model = perceptron()
    one_model, gradient = OneModel([make_optimizer(model)]), gradient_of(model)
    clock = VirtualClock(TIMING, workers)
    run = SharedRun(workers, Settings(RULES[rule]()), clock)
    all_of_them = VirtualWorkers(run, clock, one_model.make, Endless())
    all_of_them.begin()

    def step() -> None:
        worker = all_of_them.next()
        assert worker is not None
        one_model.show(worker)
        gradient()
        one_model.hand_over(worker)
        all_of_them.push()

    yield step
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
    print("rule      workers  plain ms  virtual ms  ratio  join s")
    for rule in RULES:
        for workers in args.workers:
            began = time.perf_counter()
            with virtual(workers, rule) as step:
                joined_s = time.perf_counter() - began
                ours, theirs = [], []
                alone = plain()
                milliseconds(step, 2 * workers)  # all versions have been written once
                gc.freeze()
                for _ in range(ROUNDS):
                    theirs.append(milliseconds(alone, args.steps))
                    ours.append(milliseconds(step, args.steps))
            ratio = min(ours) / min(theirs)
            print(f"{rule:<9} {workers:>7}  {min(theirs):>8.3f}  {min(ours):>10.3f}  {ratio:>5.2f}  {joined_s:>6.2f}")


if __name__ == "__main__":
    main()
