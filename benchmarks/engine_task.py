"""The task that every system of `benchmarks.engine` works on, and how its loop is measured."""

import time
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import Linear, Module, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, Optimizer

BATCH: Final = 64
SAMPLES: Final = 4096  # of each worker, in memory
LEARNING_RATE: Final = 0.01
WARM_UP_S: Final = 0.5
WARM_UP_STEPS: Final = 100  # where steps are counted, not timed
STEPS_PER_S: Final = 150  # there: how many steps make a second, roughly
OptimizerName = Literal["SGD", "Adam"]


class Measured(NamedTuple):
    """Of all workers and servers together. An update of several averaged gradients counts as one update.

    `cpu_ms` is the CPU time of all processes for each gradient. `staleness` is the mean, NaN where it is not known.
    """

    updates_per_s: float
    gradients_per_s: float
    cpu_ms: float
    staleness: float = 0.0


class Share(NamedTuple):
    """One worker's part between its own start and end of measuring; `cpu_s` may contain a server's time too."""

    gradients: int
    seconds: float
    cpu_s: float


def perceptron() -> Module:
    """784-512-512-10, 669,706 parameters, the same in every process."""
    torch.manual_seed(0)
    return Sequential(Linear(784, 512), ReLU(), Linear(512, 512), ReLU(), Linear(512, 10))


def make_optimizer(model: Module, name: OptimizerName = "SGD") -> Optimizer:
    """A fresh optimizer over all parameters."""
    if name == "Adam":
        return Adam(model.parameters(), lr=LEARNING_RATE / 10)
    return SGD(model.parameters(), lr=LEARNING_RATE)


def samples(worker: int) -> tuple[Tensor, Tensor]:
    """Inputs [SAMPLES, 784] and labels [SAMPLES] of one worker."""
    generator = torch.Generator().manual_seed(worker)
    return torch.rand(SAMPLES, 784, generator=generator), torch.randint(10, (SAMPLES,), generator=generator)


def backward(model: Module, inputs: Tensor, labels: Tensor, step: int) -> None:
    """Compute the gradients of one step's batch, into `p.grad` of parameters that have none."""
    start = step * BATCH % SAMPLES
    torch.autograd.backward(cross_entropy(model(inputs[start : start + BATCH]), labels[start : start + BATCH]))


def loop(
    model: Module,
    apply: Callable[[], object],
    worker: int,
    seconds: float,
    servers_cpu_s: Callable[[], float] = lambda: 0.0,
) -> Share:
    """Train for WARM_UP_S and then, measured, for `seconds`; `apply` does everything after the backward pass.

    `servers_cpu_s` is read when measuring starts and ends: CPU seconds of processes that work for the workers.
    """
    inputs, labels = samples(worker)
    parameters = list(model.parameters())

    def run_for(duration_s: float) -> int:
        steps, until = 0, time.perf_counter() + duration_s
        while time.perf_counter() < until:
            for parameter in parameters:
                parameter.grad = None
            backward(model, inputs, labels, steps)
            apply()
            steps += 1
        return steps

    run_for(WARM_UP_S)
    started, cpu_s = time.perf_counter(), time.process_time() + servers_cpu_s()
    gradients = run_for(seconds)
    return Share(gradients, time.perf_counter() - started, time.process_time() + servers_cpu_s() - cpu_s)


def together(shares: list[Share], updates_per_gradient: float = 1.0, staleness: float = 0.0) -> Measured:
    """The rates of workers that ran side by side."""
    gradients = sum(share.gradients for share in shares)
    rate = gradients / max(share.seconds for share in shares)
    cpu_ms = 1000 * sum(share.cpu_s for share in shares) / gradients
    return Measured(rate * updates_per_gradient, rate, cpu_ms, staleness)
