"""Updates per second and CPU time of every way to train on several processes, measured side by side.

    python -m benchmarks.engine [--all] [--only NAME ...] [--list] [--json FILE]

One task everywhere: a 784-512-512-10 perceptron (669,706 parameters), batch 64 from memory, plain SGD unless named,
one thread a worker. Every start is a Python process of its own, with its own layout of memory, and measures every
system once, one after the other, so that slow changes of the machine affect all of them; figures are medians over
starts, ratios are medians of the ratios within a start, with the smallest and the largest. Read the ratios first:
unconnected processes are the limit of the machine. The default rows take 7 minutes on 2 cores, `--all` about 20.
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch

from benchmarks.common import Others, machine, parser
from benchmarks.engine_systems import GOALS, SYSTEMS, System, choose
from benchmarks.engine_table import table
from benchmarks.engine_task import Measured

START_S: Final = 600.0
"""Seconds for all systems of one start, beyond those in which each is measured."""


def once(systems: list[System], seconds: float) -> dict[str, list[Measured]]:
    """Measure every system once, in this process."""
    results: dict[str, list[Measured]] = {}
    for system in systems:
        results[system.name] = [system.measure(seconds)]
        print(f"# {system.name}: {results[system.name][0].updates_per_s:.0f}/s", flush=True)
    return results


def measure(systems: list[System], seconds: float, starts: int) -> dict[str, list[Measured]]:
    """Measure every system once per start, in the same order. CalledProcessError if a start fails."""
    results: dict[str, list[Measured]] = {system.name: [] for system in systems}
    with TemporaryDirectory() as folder:
        out = Path(folder) / "start.json"
        for start in range(starts):
            print(f"# start {start + 1} of {starts}", flush=True)
            command = [sys.executable, "-m", "benchmarks.engine", *sys.argv[1:], "--starts", "1", "--json", str(out)]
            subprocess.run(command, check=True, timeout=START_S + 3 * seconds * len(systems))
            for name, runs in json.loads(out.read_text())["runs"].items():
                results[name] += [Measured(**run) for run in runs]
    return results


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=2.0, help="how long each system is measured in each start")
    options.add_argument("--starts", type=int, default=10)
    options.add_argument("--all", action="store_true", help="every row, not only the default ones")
    options.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only rows with this name or part of a name"
    )
    options.add_argument("--list", action="store_true", help="print the names of all rows and end")
    options.add_argument("--json", type=Path, help="also write every single measurement here")
    given = options.parse_args()
    if given.list:
        print("\n".join(f"{system.name}{'' if system.default else ' (--all)'}" for system in SYSTEMS))
        return
    torch.set_num_threads(1)
    others, systems = Others(), choose(SYSTEMS, given.only, given.all)
    results = once(systems, given.seconds) if given.starts == 1 else measure(systems, given.seconds, given.starts)
    if given.starts > 1:
        print(f"\n{table(results, GOALS)}\n\n{others.sentence()}")
    if given.json:
        content: dict[str, Any] = {name: [run._asdict() for run in runs] for name, runs in results.items()}
        given.json.write_text(json.dumps({"machine": machine(), "runs": content}, indent=1))


if __name__ == "__main__":
    main()
