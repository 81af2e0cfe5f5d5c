"""One run of one case, in a process of its own: python -m tests.clients.program NAME WAY FOLDER.

What it found goes to FOLDER/outcome.json; stacks of all its processes to FOLDER/stacks.txt at SIGUSR1.
"""

import faulthandler
import importlib
import json
import re
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, Final

import torch

from tests.clients.case import Setting, Way
from tests.clients.table import CASES

ROOT: Final = Path(__file__).resolve().parents[2]


def trainer_arguments(way: Way) -> dict[str, Any]:
    """As a person would write them."""
    from scalebook.training.ps.policy.clock import ClockSettings
    from scalebook.training.strategies.async_ps import AsyncPS

    if way == "single":
        return {"accelerator": "cpu", "devices": 1}
    if way == "ddp":
        return {"accelerator": "cpu", "devices": 2, "strategy": "ddp_fork"}
    if way == "virtual":
        strategy = AsyncPS(host="virtual", workers=4, clock=ClockSettings(gradient_s=0.05))
        return {"accelerator": "cpu", "devices": 1, "strategy": strategy}
    return {"accelerator": "cpu", "devices": 2, "strategy": AsyncPS(rule=way, workers=2)}


def run(name: str, way: Way, folder: Path) -> dict[str, Any]:
    """What became of it, as JSON."""
    case = next(case for case in CASES if case.name == name)
    module, _, function = case.program.partition(".")
    try:
        program = getattr(importlib.import_module(f"tests.clients.cases.{module}"), function)
    except (ImportError, RuntimeError) as error:  # torchvision for another torch ends in a RuntimeError
        return {"outcome": "not here", "error": _said(error)}
    try:
        values = program(Setting(trainer_arguments(way), folder))
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is what became of the run
        traceback.print_exc()
        return {"outcome": "refused" if is_refused(str(error)) else "failed", "error": _said(error)}
    return {"outcome": "ended", "values": {key: float(value) for key, value in values.items()}}


def is_refused(message: str) -> bool:
    """Whether docs/refused.md lists it."""
    listed = re.findall(r"^\| `(.+?)` \|", (ROOT / "docs" / "refused.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed
    return any(re.search(".*".join(map(re.escape, row.split("…"))), message, re.DOTALL) for row in listed)


def _said(error: BaseException) -> str:
    """Of an error that was raised in another process the last line of that one's traceback."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if type(error).__name__ == "ProcessRaisedException" and lines:
        return lines[-1]
    return f"{type(error).__name__}: {' '.join(lines)}"


def main() -> None:
    name, way, folder = sys.argv[1:]
    with (Path(folder) / "stacks.txt").open("w") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        found = run(name, way, Path(folder))  # type: ignore[arg-type]  # the runner gives a Way
    (Path(folder) / "outcome.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
