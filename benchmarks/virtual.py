"""What a step of virtual workers costs beside a step of one process without a parameter server.

`python -m benchmarks.virtual` (two minutes): the perceptron of `engine_task` (669,706 parameters), SGD, one thread, the
two in turn. Process CPU time, best of the rounds; read the ratio. Both keep the memory that a step frees, as a worker's
process does. More workers hold more versions, which do not all fit into the processor's cache.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

import torch
from torch.nn import Module

from benchmarks.common import parser
from benchmarks.engine_task import backward, make_optimizer, perceptron, samples
from scalebook.training.engine import Settings, SharedRun
from scalebook.training.engine.rules.clock_settings import ClockSettings, Distribution, Link
from scalebook.training.engine.rules.update_rules import RULES
from scalebook.training.engine.sim import ModelMultiplexer, SimulatedClock, SimulatedWorkers
from scalebook.training.lightning.processes.forked import keep_what_is_freed
from scalebook.training.planner.play import EndlessWork

ROUNDS: Final = 5
TIMING: Final = ClockSettings(
    Distribution("gamma", 0.1, 0.2), server_s=1e-4, link=Link(1e-4, 1.25e9), server_link=Link(0.0, 1.25e10)
)
Step = Callable[[], None]


def gradient_of(model: Module) -> Step:
    """A function that computes forward and backward of the next batch."""
    (inputs, labels), numbers = samples(0), count()
    return lambda: backward(model, inputs, labels, next(numbers))


def plain() -> Step:
    """A function that makes a step of one process."""
    model = perceptron()
    optimizer, gradient = make_optimizer(model), gradient_of(model)

    def step() -> None:
        optimizer.zero_grad()
        gradient()
        optimizer.step()

    return step


@contextmanager
def virtual(workers: int, rule: str) -> Iterator[Step]:
    """A function that makes a step of the virtual worker whose turn it is."""
    model = perceptron()
    multiplexer, gradient = ModelMultiplexer([make_optimizer(model)]), gradient_of(model)
    clock = SimulatedClock(TIMING, workers)
    run = SharedRun(workers, Settings(RULES[rule]()), clock)
    all_of_them = SimulatedWorkers(run, clock, multiplexer.make, EndlessWork())
    all_of_them.begin_all()

    def step() -> None:
        worker = all_of_them.next()
        assert worker is not None
        multiplexer.switch_to(worker)
        gradient()
        multiplexer.hand_over(worker)
        all_of_them.push()

    yield step
    all_of_them.detach()
    run.close()


def milliseconds(step: Step, steps: int) -> float:
    """Process CPU time of a step."""
    began = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - began) / steps * 1e3


def main() -> None:
    """Print a table of rules and workers."""
    options = parser(__doc__)
    options.add_argument("--workers", type=int, nargs="+", default=[1, 8, 64])
    options.add_argument("--steps", type=int, default=200, help="of each round")
    args = options.parse_args()
    torch.set_num_threads(1)
    keep_what_is_freed()
    print("rule      workers  plain ms  virtual ms  ratio  join s")
    for rule in RULES:
        for workers in args.workers:
            began = time.perf_counter()
            with virtual(workers, rule) as step:
                joined_s, alone = time.perf_counter() - began, plain()
                milliseconds(step, 2 * workers)  # all versions have been written once
                gc.freeze()
                rounds = [(milliseconds(alone, args.steps), milliseconds(step, args.steps)) for _ in range(ROUNDS)]
            plain_ms, ours_ms = map(min, zip(*rounds, strict=True))
            ratio = ours_ms / plain_ms
            print(
                f"{rule:<9} {workers:>7}  {plain_ms:>8.3f}  {ours_ms:>10.3f}  {ratio:>5.2f}  {joined_s:>6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
