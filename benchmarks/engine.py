"""Updates per second and CPU time per update: one process, DDP, AsyncPS; as a bare loop and through Lightning.

    python -m benchmarks.engine [--seconds 4] [--repeats 5] [--json FILE]

One task everywhere: a 784-512-512-10 perceptron (669,706 parameters), batch 64 from memory, plain SGD, two workers,
one thread each. Every repeat measures every system once, one after the other, so that slow changes of the machine
meet all alike; figures are medians over repeats, ratios are medians of the ratios within a repeat.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Linear, Module, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from benchmarks.engine_lightning import through_lightning
from training.ps import SharedRun, join
from training.ps.rules import Async
from training.strategies.processes import run_workers

BATCH: Final = 64
SAMPLES: Final = 4096
LEARNING_RATE: Final = 0.01
WARM_UP_S: Final = 0.5
DEADLINE_S: Final = 60.0


class Measured(NamedTuple):
    """Of all workers together. `staleness` is the mean, 0 where there is none."""

    updates_per_s: float
    cpu_ms_per_update: float
    staleness: float = 0.0


class Share(NamedTuple):
    """One worker's part between its own start and end of measuring."""

    updates: int
    seconds: float
    cpu_seconds: float


def perceptron() -> Module:
    """The model, the same in every process."""
    torch.manual_seed(0)
    return Sequential(Linear(784, 512), ReLU(), Linear(512, 512), ReLU(), Linear(512, 10))


def samples(worker: int) -> tuple[Tensor, Tensor]:
    """Inputs [SAMPLES, 784] and labels [SAMPLES] of one worker."""
    generator = torch.Generator().manual_seed(worker)
    return torch.rand(SAMPLES, 784, generator=generator), torch.randint(10, (SAMPLES,), generator=generator)


def loop(model: Module, apply: Callable[[], object], worker: int, seconds: float) -> Share:
    """Train for WARM_UP_S and then measured for `seconds`; `apply` does whatever follows the backward pass."""
    inputs, labels = samples(worker)
    parameters = list(model.parameters())

    def step(number: int) -> None:
        at = number * BATCH % SAMPLES
        for parameter in parameters:
            parameter.grad = None
        torch.autograd.backward(cross_entropy(model(inputs[at : at + BATCH]), labels[at : at + BATCH]))
        apply()

    steps, until = 0, time.perf_counter() + WARM_UP_S
    while time.perf_counter() < until:
        step(steps)
        steps += 1
    steps, started, cpu, until = 0, time.perf_counter(), time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        step(steps)
        steps += 1
    return Share(steps, time.perf_counter() - started, time.process_time() - cpu)


def summed(shares: list[Share], updates: int | None = None, staleness: float = 0.0) -> Measured:
    """Rates of workers that ran side by side; `updates` when they did not make one each step (DDP: one together)."""
    made = sum(share.updates for share in shares) if updates is None else updates
    rate = made / max(share.seconds for share in shares)
    return Measured(rate, 1000 * sum(share.cpu_seconds for share in shares) / made, staleness)


def unconnected(seconds: float, processes: int) -> Measured:
    """The plain loop, forked like the others; several share nothing: what the machine gives to any two processes."""

    def body(worker: int) -> Share:
        model = perceptron()
        return loop(model, SGD(model.parameters(), lr=LEARNING_RATE).step, worker, seconds)

    return summed(run_workers(processes, body))


def async_ps(seconds: float, workers: int) -> Measured:
    """The parameter server, used without Lightning."""
    run = SharedRun(workers)

    def body(worker: int) -> Share:
        model = perceptron()
        membership = run.member(worker, DEADLINE_S)
        client = join(run, membership, SGD(model.parameters(), lr=LEARNING_RATE), Async()).client
        return loop(model, client.push, worker, seconds)

    shares = run_workers(workers, body)
    run.close()
    return summed(shares, staleness=run.control.staleness().mean())


def ddp(seconds: float, workers: int) -> Measured:
    """torch's DistributedDataParallel over gloo; a step of all workers is one update."""
    store = Path(f"/tmp/benchmark-ddp-{os.getpid()}-{time.monotonic_ns()}")
    steps = max(1, int(seconds * 150))  # counted, not timed: the ranks must agree when to end

    def body(worker: int) -> Share:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=worker, world_size=workers)
        model = DistributedDataParallel(perceptron())
        optimizer, (inputs, labels) = SGD(model.parameters(), lr=LEARNING_RATE), samples(worker)
        started, cpu = 0.0, 0.0
        for number in range(-50, steps):
            if number == 0:
                started, cpu = time.perf_counter(), time.process_time()
            at = number * BATCH % SAMPLES
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(model(inputs[at : at + BATCH]), labels[at : at + BATCH]))
            optimizer.step()
        return Share(steps, time.perf_counter() - started, time.process_time() - cpu)

    try:
        return summed(run_workers(workers, body), updates=steps)
    finally:
        store.unlink(missing_ok=True)


SYSTEMS: Final[dict[str, Callable[[float], Measured]]] = {
    "one process, bare": lambda seconds: unconnected(seconds, 1),
    "two unconnected processes, bare": lambda seconds: unconnected(seconds, 2),
    "DDP gloo x 2, bare": lambda seconds: ddp(seconds, 2),
    "AsyncPS x 1, bare": lambda seconds: async_ps(seconds, 1),
    "AsyncPS x 2, bare": lambda seconds: async_ps(seconds, 2),
    "single device, Lightning": lambda seconds: Measured(*through_lightning("auto", 1, seconds)),
    "DDP x 2, Lightning": lambda seconds: Measured(*through_lightning("ddp", 2, seconds)),
    "AsyncPS x 1, Lightning": lambda seconds: Measured(*through_lightning("async_ps", 1, seconds)),
    "AsyncPS x 2, Lightning": lambda seconds: Measured(*through_lightning("async_ps", 2, seconds)),
}
GOALS: Final = [
    ("AsyncPS x 2, bare", "one process, bare", "updates_per_s", ">= 1.7"),
    ("two unconnected processes, bare", "one process, bare", "updates_per_s", "(the machine's limit)"),
    ("AsyncPS x 2, bare", "DDP gloo x 2, bare", "updates_per_s", ">= 2.0"),
    ("AsyncPS x 2, bare", "one process, bare", "cpu_ms_per_update", "<= 1.15"),
    ("single device, Lightning", "AsyncPS x 1, Lightning", "updates_per_s", "<= 1.10 (step time)"),
    ("AsyncPS x 2, Lightning", "single device, Lightning", "updates_per_s", ">= 1.6"),
    ("AsyncPS x 2, Lightning", "DDP x 2, Lightning", "updates_per_s", "-"),
]


def machine() -> str:
    """One line about where this ran."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, {versions}"


def measure(seconds: float, repeats: int, chosen: list[str]) -> dict[str, list[Measured]]:
    """Every system once a repeat, in the same order; two rows that cannot be compared never share a repeat."""
    results: dict[str, list[Measured]] = {name: [] for name in chosen}
    for repeat in range(repeats):
        for name in chosen:
            results[name].append(SYSTEMS[name](seconds))
            print(f"# {repeat + 1}/{repeats} {name}: {results[name][-1].updates_per_s:.0f}/s", flush=True)
    return results


def ratios(results: dict[str, list[Measured]]) -> list[tuple[str, float, str]]:
    """Each goal's median ratio within repeats."""
    found = []
    for above, below, figure, goal in GOALS:
        if above in results and below in results:
            pairs = zip(results[above], results[below], strict=True)
            ratio = statistics.median(getattr(a, figure) / getattr(b, figure) for a, b in pairs)
            found.append((f"{above} / {below}: {figure}", ratio, goal))
    return found


def table(results: dict[str, list[Measured]]) -> str:
    """Markdown: medians, then ratios."""
    lines = ["| system | updates/s | CPU ms/update | mean staleness |", "|---|---:|---:|---:|"]
    for name, runs in results.items():
        rate, cpu, stale = (statistics.median(column) for column in zip(*runs, strict=True))
        lines.append(f"| {name} | {rate:.0f} | {cpu:.2f} | {stale:.2f} |")
    lines += ["", "| ratio | measured | goal |", "|---|---:|---|"]
    lines += [f"| {name} | {ratio:.2f} | {goal} |" for name, ratio, goal in ratios(results)]
    return "\n".join([*lines, "", machine()])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each system is measured in each repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="measure only systems whose name contains this")
    parser.add_argument("--json", type=Path, help="also write every single measurement here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [name for name in SYSTEMS if arguments.only in name]
    results = measure(arguments.seconds, arguments.repeats, chosen)
    print(table(results))
    if arguments.json:
        content: dict[str, Any] = {name: [run._asdict() for run in runs] for name, runs in results.items()}
        arguments.json.write_text(json.dumps({"machine": machine(), "runs": content}, indent=1))


if __name__ == "__main__":
    main()
