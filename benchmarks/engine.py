"""Updates per second and CPU time of every way to train on several processes, measured side by side.

    python -m benchmarks.engine [--all] [--only NAME ...] [--list]

One task everywhere: a 784-512-512-10 perceptron (669,706 parameters), batch 64 from memory, plain SGD unless named,
one thread a worker; rows that begin with another model's name train that one through Lightning, and as a recorded run
of `scalebook fit`. A start measures every row once, directly one after the other, so that slow changes of the machine
affect all of them; each row has a Python process of its own, so that no row depends on earlier ones. Figures are
medians over starts, ratios are medians of the ratios within a start, with the smallest and the largest. Read the ratios
first: unconnected processes are the limit of the machine. The default rows take 12 minutes on 2 cores.
"""

import os
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Final

import torch

from benchmarks.common import Others, parser
from benchmarks.engine_systems import GOALS, SYSTEMS, System, choose
from benchmarks.engine_table import table
from benchmarks.engine_task import Measured

ROW_S: Final = 300.0
"""Seconds of a row, at most, beyond those in which it is measured."""


def in_a_child(row: int, seconds: float, parent: Connection) -> None:
    """Say that everything is imported, wait for the row's turn, and measure it."""
    torch.set_num_threads(1)
    parent.send(None)
    parent.recv()
    parent.send(SYSTEMS[row].measure(seconds))


def answer(child: Connection, name: str, limit_s: float) -> Any:
    """The next message of a row's process. RuntimeError if there is none."""
    if not child.poll(limit_s):
        raise RuntimeError(f"{name}: no answer after {limit_s:g} s")
    try:
        return child.recv()
    except EOFError:
        raise RuntimeError(f"{name}: its process has ended, see above") from None


def start(systems: list[System], seconds: float) -> Iterator[tuple[str, Measured]]:
    """Measure every row once, each in a new process. As many as there are cores import at the same time; then they take
    turns."""
    context, cores = get_context("spawn"), os.cpu_count() or 1
    for first in range(0, len(systems), cores):
        waiting = list[tuple[str, Connection, SpawnProcess]]()
        try:
            for system in systems[first : first + cores]:
                child, own = context.Pipe()
                process = context.Process(target=in_a_child, args=(SYSTEMS.index(system), seconds, own))
                process.start()
                own.close()
                waiting.append((system.name, child, process))
            for name, child, _ in waiting:
                answer(child, name, ROW_S)
            for name, child, process in waiting:
                child.send(None)
                measured: Measured = answer(child, name, ROW_S + 3 * seconds)
                process.join(ROW_S)
                print(f"# {name}: {measured.updates_per_s:.0f}/s", flush=True)
                yield name, measured
        finally:
            for _, child, process in waiting:
                process.terminate()  # without effect on those that have ended
                process.join(ROW_S)
                child.close()


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=2.0, help="how long each system is measured in each start")
    options.add_argument("--starts", type=int, default=10)
    options.add_argument("--all", action="store_true", help="every row, not only the default ones")
    options.add_argument("--only", action="append", default=[], metavar="NAME", help="rows with this (part of a) name")
    options.add_argument("--list", action="store_true", help="print the names of all rows and end")
    given = options.parse_args()
    if given.list:
        print("\n".join(f"{system.name}{'' if system.default else ' (--all)'}" for system in SYSTEMS))
        return
    others, systems = Others(), choose(SYSTEMS, given.only, given.all)
    results: dict[str, list[Measured]] = {system.name: [] for system in systems}
    for number in range(given.starts):
        print(f"# start {number + 1} of {given.starts}", flush=True)
        for name, measured in start(systems, given.seconds):
            results[name].append(measured)
    print(f"\n{table(results, GOALS)}\n\n{others.sentence()}")


if __name__ == "__main__":
    main()
