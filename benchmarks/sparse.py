"""A sparse table under the parameter server, beside a dense one, and beside one process.

    python -m benchmarks.sparse [--rows 1000000] [--width 16] [--batch 256] [--steps 300]

A table and a small layer above it; each step reads so many random rows. `one process`: torch's own optimizer on the
same sparse gradients. The others: one worker, rule async, host inline, by rows (sparse=True) and as a dense parameter
(sparse=False), whose gradient is as large as the table. The systems take turns; the best of three rounds counts; one
thread.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD, Adagrad, Optimizer, SparseAdam

from benchmarks.machine import machine
from scalebook.training.engine import Settings, SharedRun, join

ROUNDS: Final = 3
DENSE_SHARE: Final = 50  # dense steps take so much longer that fewer do
Make = Callable[[Iterable[Parameter]], Optimizer]


class Measured(NamedTuple):
    """Updates per second, and bytes pushed for each of them."""

    rate: float
    pushed: float


class Scorer(nn.Module):
    """The mean of a few embedded rows, through a layer or two."""

    def __init__(self, rows: int, width: int, sparse: bool, hidden: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width, sparse=sparse)
        sizes = [nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1)] if hidden else []
        self.head = nn.Sequential(*sizes)

    def forward(self, rows: Tensor) -> Tensor:
        """The loss of a batch of rows (int64 [batch])."""
        out: Tensor = self.head(self.table(rows))
        return (out - 1).square().mean()


def batches(rows: int, batch: int, count: int) -> list[Tensor]:
    """Random batches of rows, drawn beforehand."""
    draw = torch.Generator().manual_seed(0)
    return [torch.randint(0, rows, (batch,), generator=draw) for _ in range(count)]


def alone(model: Scorer, make: Make, given: list[Tensor]) -> Measured:
    """One process with the same optimizer."""
    optimizer = make(model.parameters())
    began = 0.0
    for number, rows in enumerate(given):
        if number == len(given) // 10:
            began = time.perf_counter()
        optimizer.zero_grad()
        model(rows).backward()
        optimizer.step()
    return Measured((len(given) - len(given) // 10) / (time.perf_counter() - began), 0.0)


def served(model: Scorer, make: Make, given: list[Tensor]) -> Measured:
    """One worker of a parameter server."""
    run = SharedRun(1, Settings())
    joined = join(run, run.member(0, 60.0), [make(model.parameters())], model=model)
    joined.start()
    joined.begin()
    (client,) = joined.clients
    began = 0.0
    for number, rows in enumerate(given):
        if number == len(given) // 10:
            began = time.perf_counter()
        for parameter in model.parameters():
            parameter.grad = None
        model(rows).backward()
        client.push()
    rate = (len(given) - len(given) // 10) / (time.perf_counter() - began)
    pushed = sum(measured.pushed_bytes for measured in run.pushes()) / len(given)
    joined.finish()
    joined.detach()
    run.close()
    return Measured(rate, pushed)


def best_in_turn(*measures: Callable[[], Measured]) -> list[Measured]:
    """The fastest of several rounds of each; they take turns."""
    rounds = [[measure() for measure in measures] for _ in range(ROUNDS)]
    return [max(of_one) for of_one in zip(*rounds, strict=True)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    given = batches(arguments.rows, arguments.batch, arguments.steps)
    few = given[: max(10, arguments.steps // DENSE_SHARE)]
    print(f"{machine()}. Table {arguments.rows:,} x {arguments.width}, {arguments.batch} rows a step.\n")
    print(
        "| optimizer, layer above | one process, updates/s | by rows | dense | to one process | rows to dense | bytes |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    makes: list[tuple[str, Make, int]] = [
        ("SGD, none", lambda p: SGD(p, lr=0.1), 0),
        ("SGD, 256", lambda p: SGD(p, lr=0.1), 256),
        ("SGD, 1024", lambda p: SGD(p, lr=0.1), 1024),
        ("Adagrad, 256", lambda p: Adagrad(p, lr=0.1), 256),
        ("SparseAdam, none", lambda p: SparseAdam(list(p), lr=0.1), 0),
    ]
    for name, make, hidden in makes:

        def made(sparse: bool, hidden: int = hidden) -> Scorer:
            return Scorer(arguments.rows, arguments.width, sparse, hidden)

        def one(make: Make = make, made: Callable[[bool], Scorer] = made) -> Measured:
            return alone(made(True), make, given)

        def rows(make: Make = make, made: Callable[[bool], Scorer] = made) -> Measured:
            return served(made(True), make, given)

        plain, by_rows = best_in_turn(one, rows)
        line = f"| {name} | {plain.rate:,.0f} | {by_rows.rate:,.0f} |"
        if name.startswith("SparseAdam"):  # which refuses dense gradients
            print(f"{line} | {plain.rate / by_rows.rate:.2f} | | |", flush=True)
            continue
        dense = served(made(False), make, few)
        print(
            f"{line} {dense.rate:,.1f} | {plain.rate / by_rows.rate:.2f} | {by_rows.rate / dense.rate:,.0f} | "
            f"1 / {dense.pushed / by_rows.pushed:,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
