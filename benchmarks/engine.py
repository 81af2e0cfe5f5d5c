"""Updates per second and CPU time of every way to train on several processes, measured side by side.

    python -m benchmarks.engine [--all] [--only NAME ...] [--extra ray=PYTHON ...] [--json FILE]

One task everywhere: a 784-512-512-10 perceptron (669,706 parameters), batch 64 from memory, plain SGD unless named,
one thread a worker. Every repeat measures every system once, one after the other, so that slow changes of the machine
meet all alike; figures are medians over repeats, ratios are medians of the ratios within a repeat.
The default rows take 3 to 4 minutes on 2 cores, `--all` about 9.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from benchmarks import engine_extras, engine_off
from benchmarks.engine_systems import GOALS, SYSTEMS, System, choose
from benchmarks.engine_table import table
from benchmarks.engine_task import Measured
from benchmarks.machine import Others, machine


def measure(systems: list[System], seconds: float, repeats: int) -> dict[str, list[Measured]]:
    """Every system once a repeat, in the same order."""
    results: dict[str, list[Measured]] = {system.name: [] for system in systems}
    for repeat in range(repeats):
        for system in systems:
            measured = system.measure(seconds)
            results[system.name].append(measured)
            print(f"# {repeat + 1}/{repeats} {system.name}: {measured.updates_per_s:.0f}/s", flush=True)
    return results


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each system is measured in each repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--all", action="store_true", help="every row, not only the default ones")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="rows of that name, or with it in theirs"
    )
    parser.add_argument(
        "--extra", action="append", default=[], metavar="NAME=PYTHON", help="see benchmarks/extras/README.md"
    )
    parser.add_argument("--list", action="store_true", help="print the names of all rows and end")
    parser.add_argument("--json", type=Path, help="also write every single measurement here")
    return parser.parse_args()


def main() -> None:
    """The command."""
    given = arguments()
    extras = [system for option in given.extra for system in engine_extras.parse(option)]
    if given.list:
        print("\n".join(f"{system.name}{'' if system.default else ' (--all)'}" for system in [*SYSTEMS, *extras]))
        return
    torch.set_num_threads(1)
    others = Others()
    results = measure([*choose(SYSTEMS, given.only, given.all), *extras], given.seconds, given.repeats)
    goals = [*GOALS, *engine_extras.goals([option.partition("=")[0] for option in given.extra])]
    print("\n" + table(results, goals))
    print(f"\n{engine_off.sentence()}\n\n{others.sentence()}")
    if given.json:
        content: dict[str, Any] = {name: [run._asdict() for run in runs] for name, runs in results.items()}
        given.json.write_text(json.dumps({"machine": machine(), "runs": content}, indent=1))


if __name__ == "__main__":
    main()
