"""One run in a process of its own, with a deadline; afterwards nothing of it is left, or that is said."""

import json
import os
import signal
import subprocess
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from tests.clients.case import Case, Way
from tests.clients.environment import ROOT, Environment
from tests.clients.verdicts import Result

NONCE: Final = "SCALEBOOK_CLIENTS_RUN"
GRACE_S: Final = 5.0
"""For processes that end by themselves after the program."""
SHARED: Final = Path("/dev/shm")


def run(case: Case, way: Way, environment: Environment, folder: Path, deadline_s: float) -> Result:
    """Run it in `folder`, which is made; whatever it starts has ended when this returns."""
    folder.mkdir(parents=True)
    nonce, shared, began = uuid.uuid4().hex, set(SHARED.iterdir()), time.monotonic()
    settings = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", NONCE: nonce,
                "HF_HUB_OFFLINE": "1", "PYTHONFAULTHANDLER": "1", "MPLBACKEND": "Agg"}  # fmt: skip
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(
            [environment.python, "-m", "tests.clients.program", case.name, way, folder],
            cwd=folder, env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
        try:
            late = _waits(process, deadline_s)
            stacks = _stacks(nonce, folder) if late else ""
            left = [] if late else _left(nonce)
        finally:
            _kill(nonce)
            process.wait()
    left += [str(path) for path in set(SHARED.iterdir()) - shared if not _is_open(path)]
    seconds = round(time.monotonic() - began, 1)
    if late:
        return Result(case.name, way, "hang", error=_tail(folder), seconds=seconds, left=left, stacks=stacks)
    found = folder / "outcome.json"
    if not found.exists():
        return Result(case.name, way, "failed", error=f"died: {_tail(folder)}", seconds=seconds, left=left)
    return Result(case.name, way, **json.loads(found.read_text(encoding="utf-8")), seconds=seconds, left=left)


def _waits(process: subprocess.Popen[bytes], deadline_s: float) -> bool:
    """Whether it is still there at the deadline."""
    try:
        process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        return True
    return False


def _of(nonce: str) -> list[psutil.Process]:
    """Processes of the run, also those in a session of their own: they all have its environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(NONCE) == nonce and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _left(nonce: str) -> list[str]:
    until = time.monotonic() + GRACE_S
    while (processes := _of(nonce)) and time.monotonic() < until:
        time.sleep(0.1)
    left = []
    for process in processes:
        with suppress(psutil.Error):
            left.append(" ".join(process.cmdline())[:100])
    return left


def _kill(nonce: str) -> None:
    """Twice, for what is started meanwhile."""
    for _ in range(2):
        for process in _of(nonce):
            with suppress(psutil.Error):
                process.kill()


def _stacks(nonce: str, folder: Path) -> str:
    """Of each of its Pythons, one after the other; who has not answered within a second does not."""
    file, said = folder / "stacks.txt", []
    for process in sorted(_of(nonce), key=lambda one: one.pid):
        before = file.stat().st_size if file.exists() else 0
        with suppress(psutil.Error):
            process.send_signal(signal.SIGUSR1)
        time.sleep(1.0)
        with file.open(encoding="utf-8", errors="replace") as stacks:
            stacks.seek(before)
            said.append(f"process {process.pid}\n{stacks.read()}")
    return "\n".join(said)


def _is_open(path: Path) -> bool:
    """Whether a living process has it: then it may be somebody else's, who works beside us."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if any(str(path) in held.path for held in process.memory_maps()):
                return True
            if any(str(path) == os.readlink(one) for one in Path(f"/proc/{process.pid}/fd").iterdir()):
                return True
    return not path.exists()


def _tail(folder: Path) -> str:
    return " / ".join((folder / "output.txt").read_text(encoding="utf-8", errors="replace").splitlines()[-3:])[-400:]
