"""One check in a process of its own, so that none sees another's CUDA, and that its end is known whatever it does."""

import faulthandler
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

from lightning.fabric.plugins.environments.mpi import MPIEnvironment

from scalebook.training.base.failures import WorkerLost
from scalebook.training.lightning.processes.process_watch import descendants
from scalebook.training.lightning.processes.run_workers import run_workers

TAIL = 30  # lines of a failed check's log
_DAEMONS: set[int] = set()
"""Pids of what MPI has started in this process."""


class Machine(NamedTuple):
    """Where checks run: `gpus` is 0 under `cpu`. `name` is the device's."""

    device: Literal["cuda", "cpu"]
    gpus: int
    name: str

    @property
    def accelerator(self) -> Literal["gpu", "cpu"]:
        return "gpu" if self.device == "cuda" else "cpu"


class SkipError(Exception):
    """Why a check cannot be made here."""


@dataclass(frozen=True)
class Check:
    """`body` is given the machine and an empty folder; returns what it found in a few words, raises what is wrong.

    `point`: of the list in `tests/gpu/__init__.py`, 0 of none. `gpus`: how many it needs, where there is CUDA. `cuda`:
    why it cannot be made on a CPU.
    """

    name: str
    body: Callable[[Machine, Path], str]
    limit_s: float = 90.0
    point: int = 0
    gpus: int = 1
    cuda: str = ""

    def lacking(self, machine: Machine) -> str:
        """Why it is not made on this machine; nothing where it is."""
        if machine.device == "cpu":
            return self.cuda
        if not machine.gpus:
            return machine.name
        return f"needs {self.gpus} GPUs, here is {machine.gpus}" if machine.gpus < self.gpus else ""


@dataclass(frozen=True)
class Outcome:
    """What became of a check; `told` is what it found, or why it failed or was skipped."""

    name: str
    status: Literal["passed", "failed", "skipped"]
    told: str
    seconds: float = 0.0
    point: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def line(self) -> str:
        return f"{self.status:8} {self.seconds:6.1f} s  {self.name}: {self.told}"


def closing(outcomes: Sequence[Outcome]) -> str:
    """The last lines: how many of each, and what was not run and why."""
    by_status: dict[str, list[Outcome]] = {"passed": [], "failed": [], "skipped": []}
    for one in outcomes:
        by_status[one.status].append(one)
    lines = [", ".join(f"{len(those)} {status}" for status, those in by_status.items())]
    if skipped := by_status["skipped"]:
        lines += ["Not run:", *(f"    {one.name}: {one.told}" for one in skipped)]
    return "\n".join(lines)


def run_check(check: Check, machine: Machine, limit_s: float) -> Outcome:
    """Run it. `limit_s` is what is left of the time of all: a check that hangs is ended, and its stacks are told."""
    started = time.monotonic()
    if lacking := check.lacking(machine):
        return Outcome(check.name, "skipped", lacking, point=check.point)
    limit_s = min(check.limit_s, limit_s)
    if limit_s <= 0:
        return Outcome(check.name, "skipped", "no time was left", point=check.point)
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        try:
            (told,) = run_workers(1, lambda _: _logged(check, machine, Path(folder), log, limit_s))
            status: Literal["passed", "failed", "skipped"] = "passed"
        except SkipError as reason:
            told, status = str(reason), "skipped"
        except WorkerLost as lost:
            told, status = f"{lost} after {time.monotonic() - started:.0f} s of {limit_s:.0f}\n{_tail(log)}", "failed"
        except Exception as error:  # noqa: BLE001  # whatever it is, the other checks go on
            told, status = f"{type(error).__name__}: {error}\n{error.__cause__ or ''}\n{_tail(log)}", "failed"
    return Outcome(check.name, status, told, time.monotonic() - started, check.point)


def _logged(check: Check, machine: Machine, folder: Path, log: Path, limit_s: float) -> str:
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    faulthandler.dump_traceback_later(limit_s, exit=True)
    (folder / "work").mkdir()
    MPIEnvironment.detect()  # as each Trainer does; where mpi4py is installed, MPI's daemon then runs as long as we do
    _DAEMONS.update(descendants(os.getpid()))
    told = check.body(machine, folder / "work")
    assert left_behind() == []
    return told


def children(pid: int) -> list[int]:
    """The children of a check's process, without MPI's daemon. In that process and its forks."""
    return [child for child in descendants(pid, children_only=True) if child not in _DAEMONS]


def left_behind() -> list[str]:
    """The command lines of what a check has started and what still runs, without MPI's daemon."""
    pids = [pid for pid in descendants(os.getpid()) if pid not in _DAEMONS]
    return [f"{pid}: {_command_line(pid)}" for pid in pids]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace") or "a zombie"
    except OSError:
        return "ended meanwhile"


def _tail(log: Path) -> str:
    """The last lines; where it met its deadline, the first of where it stood then, the innermost calls."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    ended = next((number for number, line in enumerate(lines) if line.startswith("Timeout (")), None)
    shown = lines[-TAIL:] if ended is None else lines[ended : ended + TAIL]
    return "\n".join(f"    {line}" for line in shown)
