"""Runs of one case: python -m tests.clients.program NAME, which imports the libraries and forks for each run.

It reads lines `WAY FOLDER`, and answers `ended`. What was found goes to FOLDER/outcome.json; stacks of all processes of
the run to FOLDER/stacks.txt at SIGUSR1.
"""

import faulthandler
import importlib
import json
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from tests.clients.case import Case, Setting, Way
from tests.clients.table import CASES

ROOT: Final = Path(__file__).resolve().parents[2]


ARGUMENTS: Final[Mapping[Way, dict[str, Any]]] = {
    "async": {"rule": "async", "workers": 2},
    "sync": {"rule": "sync", "workers": 2},
    "virtual": {"host": "virtual", "workers": 4, "clock": {"gradient_s": 0.05}},
}
"""Of AsyncPS."""
DEGREES: Final[Mapping[Way, dict[str, int]]] = {
    "tensor": {"tensor": 2}, "shard": {"shard": 2}, "both": {"tensor": 2, "shard": 2}
}  # fmt: skip
"""Of ModelParallel."""


def trainer_arguments(way: Way, pytorch_lightning: bool = False) -> dict[str, Any]:
    """As a person would write them."""
    devices = 1 if way in ("single", "virtual") else 4 if way == "both" else 2
    if way == "single":
        return {"accelerator": "cpu", "devices": devices}
    return {"accelerator": "cpu", "devices": devices, "strategy": _strategy(way, pytorch_lightning)}


def _strategy(way: Way, pytorch_lightning: bool) -> Any:
    if way == "ddp":
        return "ddp_fork_find_unused_parameters_true"
    if way in DEGREES:
        return importlib.import_module("scalebook").ModelParallel(**DEGREES[way])
    if not pytorch_lightning:
        return importlib.import_module("scalebook").AsyncPS(**ARGUMENTS[way])
    theirs = importlib.import_module("scalebook.pytorch_lightning").AsyncPS
    registry = importlib.import_module("pytorch_lightning.strategies").StrategyRegistry
    registry.register("scalebook_clients", theirs, override=True, **ARGUMENTS[way])
    return "scalebook_clients"


Program = Callable[[Setting], Mapping[str, float]]


def find(case: Case) -> Program | BaseException:
    """The program of a case, or why its module cannot be imported here."""
    module, _, function = case.program.partition(".")
    try:
        program: Program = getattr(importlib.import_module(f"tests.clients.cases.{module}"), function)
    except Exception as error:  # noqa: BLE001  # whatever a library's import raises, torchvision a RuntimeError
        return error
    return program


def run(case: Case, program: Program | BaseException, way: Way, folder: Path) -> dict[str, Any]:
    """What became of it, as JSON."""
    if isinstance(program, BaseException):
        return {"outcome": "not here", "error": _said(program)}
    try:
        values = program(Setting(trainer_arguments(way, case.pytorch_lightning), folder))
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is what became of the run
        traceback.print_exc()
        return {"outcome": "refused" if is_refused(str(error)) else "failed", "error": _said(error)}
    return {"outcome": "ended", "values": {key: float(value) for key, value in values.items()}}


def is_refused(message: str) -> bool:
    """Whether docs/reference/refusals.md lists it."""
    listed = re.findall(
        r"^- `(.+?)`$", (ROOT / "docs" / "reference" / "refusals.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert listed
    return any(re.search(".*".join(map(re.escape, row.split("…"))), message, re.DOTALL) for row in listed)


def _said(error: BaseException) -> str:
    """Of an error that was raised in another process the last line of that one's traceback."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if type(error).__name__ == "ProcessRaisedException" and lines:
        return lines[-1]
    return f"{type(error).__name__}: {' '.join(lines)}"


def _begin(case: Case, program: Program | BaseException, way: Way, folder: Path) -> None:
    """In a process of its own, in a session of its own."""
    os.setsid()
    os.chdir(folder)
    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for at, file in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(file, at)
    faulthandler.register(signal.SIGUSR1, os.open(folder / "stacks.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    found = run(case, program, way, folder)
    (folder / "outcome.json").write_text(json.dumps(found), encoding="utf-8")


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    case = next(one for one in CASES if one.name == sys.argv[1])
    program = find(case)
    for line in sys.stdin:
        way, _, folder = line.rstrip("\n").partition(" ")
        child = os.fork()
        if child == 0:
            return _begin(case, program, way, Path(folder))  # type: ignore[arg-type]  # the runner gives a Way
        os.waitpid(child, 0)
        print("ended", flush=True)
    return None


if __name__ == "__main__":
    main()
