"""What the host does with a gradient, from its slot to the version that it makes, against a copy of the same bytes.

    python -m benchmarks.host_part [--rounds 9] [--processes 2]

A figure is a share: the time of a memcpy of as many bytes as the update must move, divided by the time of the update.
SGD must read parameters and gradient and write parameters, 3 arrays, momentum 5, Adam 7; a copy of an array moves 2.
The second share is of a copy of the gradient alone. All are timed in turn, in seconds of the processor, and a figure
is the median of its rounds; so others on the machine take nothing but bandwidth, from both. Every process has one
thread and a part of the model, as a server has, and does the same at the same time.
"""

import argparse
import ctypes
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Adam, AdamW, Optimizer

from benchmarks.engine_task import perceptron
from benchmarks.gpu_model import resnet50
from scalebook.training.engine import Settings, SharedRun
from scalebook.training.engine.memory.layout import split_into_shards
from scalebook.training.engine.store.optimizer_partition import (
    OptimizerPartition,
    allocate,
    make_partitions,
    plan_partitions,
)
from scalebook.training.engine.trace import Origin
from scalebook.training.lightning.processes.run_workers import run_workers

Make = Callable[[Sequence[Parameter]], Optimizer]
OPTIMIZERS: Final[dict[str, tuple[Make, int]]] = {
    "SGD": (lambda p: SGD(p, lr=1e-3), 3),
    "momentum": (lambda p: SGD(p, lr=1e-3, momentum=0.9), 5),
    "Adam": (Adam, 7),
    "AdamW": (AdamW, 7),
    "AdamW, fused": (lambda p: AdamW(p, fused=True), 7),
}
"""And the number of arrays that an update must read or write."""


LARGE: Final = [torch.Size(shape) for shape in ((25_000, 512), (3072, 2048), (2048, 3072))]
"""102 MB in a few tensors, as of an embedding and its layers."""


class Update(NamedTuple):
    """Makes updates of one partition, one after the other."""

    partition: OptimizerPartition
    in_blocks: bool

    def make(self) -> None:
        """Make one more."""
        partition, slots = self.partition, self.partition.slots
        for number, shard in enumerate(partition.shards):
            filled = slots.read(0)
            newest = shard.newest()
            origin = Origin(0, newest.version + 1, newest.version, newest.buffer, 0.0)
            gradients = [filled.gradients[place] for place in shard.plan.parameters]
            if not self.in_blocks:
                shard._blocks = None
            with shard.applying, shard.serving():
                assert shard.apply([origin], gradients, filled.groups), number


def partition_of(shapes: Sequence[torch.Size], make: Make) -> OptimizerPartition:
    """A partition of one worker, with a gradient in its slot."""
    run = SharedRun(1, Settings(host="process"))
    optimizer = make([Parameter(torch.randn(shape)) for shape in shapes])
    plans = plan_partitions(run, [optimizer])
    allocate(run, plans)
    (partition,) = make_partitions(run, plans, [optimizer], 0, 10.0)
    values = [p.detach() for group in optimizer.param_groups for p in group["params"]]
    for shard in partition.shards:
        shard.initialise([values[place] for place in shard.plan.parameters])
    gradients: list[Tensor | None] = [torch.randn_like(value) for value in values]
    origins = [Origin(0, 1, 0, 0, 0.0)]
    partition.slots.write(0, origins, gradients, optimizer.param_groups, valid=True)
    return partition


def seconds_of(shapes: Sequence[torch.Size], rounds: int) -> dict[str, list[float]]:
    """Seconds of each round, by what is timed; in one process."""
    size = 4 * sum(shape.numel() for shape in shapes)
    here, there = (torch.zeros(size, dtype=torch.uint8) for _ in range(2))
    memcpy = ctypes.CDLL(None).memcpy  # an eighth faster than torch's copy_
    memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    timed: dict[str, Callable[[], object]] = {"copy": lambda: memcpy(here.data_ptr(), there.data_ptr(), size)}
    for name, (make, _) in OPTIMIZERS.items():
        for in_blocks in (False, True) if name != "SGD" else (True,):
            timed[f"{name}{'' if in_blocks else ', whole'}"] = Update(partition_of(shapes, make), in_blocks).make
    for _ in range(3):
        for what in timed.values():
            what()
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    repeats = max(1, round(4e6 / size))
    for _ in range(rounds):
        for name, what in timed.items():
            started = time.process_time()
            for _ in range(repeats):
                what()
            seconds[name].append((time.process_time() - started) / repeats)
    return seconds


def measured(shapes: Sequence[torch.Size], rounds: int, processes: int) -> None:
    """Print the table of one model."""
    parts = [
        [tensor.shape for _, tensor in part]
        for part in split_into_shards([("", torch.empty(s)) for s in shapes], processes)
    ]
    every: list[dict[str, list[float]]] = run_workers(
        processes, lambda number: seconds_of(parts[number], rounds), threads=1
    )
    size = 4 * sum(shape.numel() for shape in shapes)
    copy = statistics.mean(statistics.median(seconds["copy"]) for seconds in every)
    print(f"\n{size / 1e6:.1f} MB in {len(shapes)} tensors; a copy takes {1e3 * copy:.2f} ms\n")
    print("| update | ms | of a copy of what it must move | of a copy of the gradient |\n|---|---:|---:|---:|")
    for name in list(every[0])[1:]:
        arrays = OPTIMIZERS[name.removesuffix(", whole")][1]
        taken = statistics.mean(statistics.median(seconds[name]) for seconds in every)
        pairs = [pair for seconds in every for pair in zip(seconds["copy"], seconds[name], strict=True)]
        share = statistics.median(copied / update for copied, update in pairs)
        print(f"| {name} | {1e3 * taken:.2f} | {share * arrays / 2:.2f} | {share:.2f} |")


def main() -> None:
    """Print the tables; "whole" is a step on a copy of version and state, as of any other optimizer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host_part")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    print(f"{arguments.processes} processes of one thread")
    for shapes in (LARGE, *([p.shape for p in model.parameters()] for model in (resnet50(), perceptron()))):
        measured(shapes, arguments.rounds, arguments.processes)


if __name__ == "__main__":
    main()
