"""All checks, then the figures: `python -m tests.gpu [--device cpu] [--only WORD] [--json FILE]`.

Prints a table and writes JSON with the device's name. Ends with code 1 when a check has failed. Where there is no
CUDA each check is skipped by name; `--device cpu` runs there what does not need it.
"""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any, Final

import lightning
import torch

from benchmarks import gpu as figures
from scalebook.training.strategies.processes import run_workers
from tests.gpu import checks, kills
from tests.gpu.running import Machine, Outcome, run_check

LIMIT_S: Final = 460.0
"""For all checks and figures; a machine may be ours for ten minutes."""
FIGURES_S: Final = 150.0  # of these, kept for the figures
ALL: Final = [*checks.CHECKS, *kills.CHECKS]


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--only", default="", help="checks whose names contain this; no figures")
    parser.add_argument("--no-figures", action="store_true", help="checks alone")
    parser.add_argument("--json", type=Path, default=Path("gpu.json"))
    given = parser.parse_args()
    until = time.monotonic() + LIMIT_S
    machine, versions = found(given.device)
    print(f"{machine.name}; {', '.join(f'{name} {version}' for name, version in versions.items())}\n", flush=True)
    outcomes = []
    for check in ALL:
        if given.only in check.name:
            if machine.device == "cuda" and not machine.gpus:
                outcome = Outcome(check.name, "skipped", machine.name)
            else:
                outcome = run_check(check, machine, until - FIGURES_S - time.monotonic())
            outcomes.append(outcome)
            print(f"{outcome.status:8} {outcome.seconds:6.1f} s  {outcome.name}: {outcome.told}", flush=True)
    result: dict[str, Any] = {"device": machine.name, "gpus": machine.gpus, "versions": versions}
    if not given.only and not given.no_figures and (machine.gpus or machine.device == "cpu"):
        try:
            result["figures"] = figures.measured(machine.device, until - time.monotonic())
            print("\n" + figures.table(result["figures"]))
        except Exception as error:  # noqa: BLE001  # what the checks have found is not lost with it
            outcomes.append(Outcome("figures", "failed", f"{type(error).__name__}: {error}\n{error.__cause__ or ''}"))
            print(outcomes[-1].told)
    result["checks"] = [outcome.as_json() for outcome in outcomes]
    given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    counts = [f"{sum(one.status == status for one in outcomes)} {status}" for status in ("passed", "failed", "skipped")]
    print(f"\n{', '.join(counts)}; {given.json}")
    sys.exit(any(one.status == "failed" for one in outcomes))


def found(device: str) -> tuple[Machine, dict[str, str]]:
    """The machine, asked in a process of its own: this one forks, so it leaves CUDA alone."""
    versions = {"torch": torch.__version__, "lightning": lightning.__version__, "Python": platform.python_version()}
    if device == "cpu":
        return Machine("cpu", 0, f"CPU, {os.cpu_count()} cores"), versions

    def ask(_: int) -> tuple[int, str, str]:
        if not torch.cuda.is_available():
            return 0, f"no CUDA here (torch {torch.__version__})", "none"
        return torch.cuda.device_count(), torch.cuda.get_device_name(0), str(torch.version.cuda)

    gpus, name, cuda = run_workers(1, ask)[0]
    return Machine("cuda", gpus, name), versions | {"CUDA": cuda}


if __name__ == "__main__":
    main()
