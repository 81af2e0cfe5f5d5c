"""Other frameworks, in environments of their own: started as programs that print their rows."""

import json
import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.engine_systems import System
from benchmarks.engine_table import Goal
from benchmarks.engine_task import Measured

FOLDER: Final = Path(__file__).parent / "extras"
SCRIPTS: Final = {path.stem.removesuffix("_ps"): path for path in sorted(FOLDER.glob("*_ps.py"))}
ALONE: Final = "one process"  # the two rows of every extra
SERVED: Final = "parameter server x 2"
DEADLINE_S: Final = 120.0


def parse(option: str) -> list[System]:
    """The systems of `--extra NAME=PYTHON`. ValueError says what is wrong with the option."""
    name, _, python = option.partition("=")
    if name not in SCRIPTS or not python:
        raise ValueError(f"--extra {option}: write NAME=PYTHON with one of {', '.join(SCRIPTS)} for NAME.")
    if not os.access(python, os.X_OK):
        raise ValueError(f"--extra {option}: {python} is not a program. {FOLDER.name}/README.md says how to make it.")
    return [
        System(row_name(name, row), partial(measure, SCRIPTS[name], python, row), default=True)
        for row in (ALONE, SERVED)
    ]


def goals(names: list[str]) -> list[Goal]:
    """Two workers with a server relative to one process, in each framework and beside ours."""
    goals_ = []
    for name in names:
        goals_.append(Goal(row_name(name, SERVED), row_name(name, ALONE), "updates_per_s"))
        goals_.append(Goal("AsyncPS x 2", row_name(name, SERVED), "updates_per_s"))
    return goals_


def row_name(extra: str, row: str) -> str:
    """The name in the table."""
    return f"{extra}: {row}"


def measure(script: Path, python: str, row: str, seconds: float) -> Measured:
    """One measurement; RuntimeError with the end of the script's output when it fails or exceeds DEADLINE_S."""
    command = [python, str(script), "--row", row, "--seconds", str(seconds)]
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=environment, check=False)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return Measured(**json.loads(ended.stdout.splitlines()[-1]))
