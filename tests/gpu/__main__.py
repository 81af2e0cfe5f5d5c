"""All checks, the figures among them: `python -m tests.gpu [--device cpu] [--only WORD] [--json FILE]`.

Prints each as it ends, then what was not run and why, and writes JSON with the device's name, its driver and the date.
Ends with code 1 when a check has failed. Where there is no CUDA each check is skipped by name; `--device cpu` runs
there what does not need it.
"""

import argparse
import json
import os
import platform
import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import lightning
import torch

from benchmarks import gpu as figures
from scalebook.training.lightning.processes.run_workers import run_workers
from tests.gpu import checks, costs, forks, kills, lives, several, torn, ways
from tests.gpu.running import Check, Machine, closing, run_check

LIMIT_S: Final = 460.0
"""For all checks and figures; a machine may be ours for ten minutes. On one GPU all is to take 6 minutes."""
FIGURES_S: Final = 130.0  # of these, kept for the figures
GOAL: Final = 0.6
"""Of the copies alone: what pushes and pulls of one worker are to reach where there are `CORES`."""
CORES: Final = 8
DRIVER: Final = Path("/proc/driver/nvidia/version")
FIGURES: Final = "figures: pushes and pulls against copies"
ROOMS: Final = (checks, torn, forks, costs, ways, kills, lives, several)
ALL: Final = [check for room in ROOMS for check in room.CHECKS]


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--only", default="", help="checks whose names contain this")
    parser.add_argument("--json", type=Path, default=Path("gpu.json"))
    given = parser.parse_args()
    until = time.monotonic() + LIMIT_S
    machine, about = found(given.device)
    print(f"{machine.name}; {', '.join(f'{name} {value}' for name, value in about.items())}\n", flush=True)
    result: dict[str, Any] = {"device": machine.name, "gpus": machine.gpus, **about}
    kept = given.json.with_suffix(".figures")
    outcomes = []
    for check in [*ALL, figures_check(kept)]:
        if given.only in check.name:
            reserved = 0.0 if check.name == FIGURES else FIGURES_S
            outcomes.append(run_check(check, machine, until - reserved - time.monotonic()))
            print(outcomes[-1].line(), flush=True)
    if kept.exists():
        result["figures"] = json.loads(kept.read_text(encoding="utf-8"))
        kept.unlink()
        print("\n" + figures.table(result["figures"]))
    result["checks"] = [outcome.as_json() for outcome in outcomes]
    given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"\n{closing(outcomes)}\n{given.json}")
    sys.exit(any(one.status == "failed" for one in outcomes))


def figures_check(kept: Path) -> Check:
    """Point 12. Figures are kept in the file as they come, so that what is ended at its deadline is there too."""
    return Check(FIGURES, partial(_measure, kept), FIGURES_S + 30.0, point=12)


def _measure(kept: Path, machine: Machine, folder: Path) -> str:
    def keep(so_far: dict[str, Any]) -> None:
        kept.write_text(json.dumps(so_far), encoding="utf-8")

    limit_s = FIGURES_S - 20 if machine.device == "cuda" else 20.0
    return judged(figures.measured(machine.device, machine.gpus, limit_s, keep), machine, os.cpu_count() or 1)


def judged(measured: dict[str, Any], machine: Machine, cores: int) -> str:
    """What the figures say of the goal; AssertionError where a GPU and enough cores miss it."""
    rows = [row for row in measured["pushes"] if "per_s" in row]
    assert rows, "no push was measured"
    assert all(row["per_s"] > 0 for row in rows)
    best = {
        mb: max((row["of_copies"] for row in rows if (row["mb"], row["workers"]) == (mb, 1)), default=0.0)
        for mb in sorted({row["mb"] for row in measured["pushes"]})
    }
    told = ", ".join(f"{mb} MB: {share:.0%}" for mb, share in best.items())
    if machine.device == "cuda" and cores >= CORES:
        assert min(best.values()) >= GOAL, f"one worker, of copies alone: {told}; the goal is {GOAL:.0%}"
    return f"one worker, of copies alone: {told}"


def found(device: str) -> tuple[Machine, dict[str, str]]:
    """The machine, asked in a process of its own: this one forks, so it leaves CUDA alone. And what is told of it."""
    about = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()), "driver": "none", "cores": str(os.cpu_count()),
        "torch": torch.__version__, "lightning": lightning.__version__, "Python": platform.python_version(),
    }  # fmt: skip
    if device == "cpu":
        return Machine("cpu", 0, f"CPU, {os.cpu_count()} cores"), about

    def ask(_: int) -> tuple[int, str]:
        if not torch.cuda.is_available():
            return 0, f"no CUDA here (torch {torch.__version__})"
        return torch.cuda.device_count(), torch.cuda.get_device_name(0)

    gpus, name = run_workers(1, ask)[0]
    return Machine("cuda", gpus, name), about | {"driver": driver_version()}


def driver_version() -> str:
    """Of NVIDIA's kernel module, as 550.54.15; `none` where it is not loaded."""
    if not DRIVER.exists():
        return "none"
    said = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", DRIVER.read_text(encoding="utf-8"))
    return said.group() if said else "unknown"


if __name__ == "__main__":
    main()
