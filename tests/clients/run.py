"""One run in a process of its own, with a deadline; afterwards nothing of it is left, or that is said."""

import json
import os
import select
import signal
import subprocess
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from tests.clients.case import Case, Way
from tests.clients.environment import ROOT, Environment
from tests.clients.verdicts import Result

NONCE: Final = "SCALEBOOK_CLIENTS_RUN"
GRACE_S: Final = 5.0
"""For processes that end by themselves after the program."""
SETTINGS: Final = {
    "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg",
}  # fmt: skip
SHARED: Final = Path("/dev/shm")


class Runs:
    """Runs of one case, one at a time: forks of a process that has imported what the case needs."""

    def __init__(self, case: Case, environment: Environment) -> None:
        self._case, self._nonce, settings = case, uuid.uuid4().hex, dict(SETTINGS)
        settings[NONCE] = self._nonce
        self._process = subprocess.Popen(
            [environment.python, "-m", "tests.clients.program", case.name], env={**os.environ, **settings}, cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> "Runs":
        return self

    def __exit__(self, *_: object) -> None:
        _kill(self._all())
        self._process.kill()
        self._process.communicate()

    def run(self, way: Way, folder: Path, deadline_s: float) -> Result:
        """Run it in `folder`, which is made; whatever it starts has ended when this returns."""
        folder.mkdir(parents=True)
        shared, began = set(SHARED.iterdir()), time.monotonic()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has died: there will be no outcome
            self._process.stdin.write(f"{way} {folder}\n")
            self._process.stdin.flush()
        late = not self._ended(deadline_s)
        stacks = _stacks(self._all(), folder) if late else ""
        left = [] if late else self._left()
        _kill(self._all())
        if late:
            assert self._ended(60.0), "a killed process is still there"
        left += [str(path) for path in set(SHARED.iterdir()) - shared if not _is_open(path)]
        seconds = round(time.monotonic() - began, 1)
        return Result(self._case.name, way, **_found(folder, late), seconds=seconds, left=left, stacks=stacks)

    def _ended(self, deadline_s: float) -> bool:
        """Whether the run has ended in time."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], deadline_s)
        if ready:
            self._process.stdout.readline()
        return bool(ready)

    def _all(self) -> list[psutil.Process]:
        """Processes of the run, also those in a session of their own: they all have its environment."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                ours = process.pid != self._process.pid and process.environ().get(NONCE) == self._nonce
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def _left(self) -> list[str]:
        until = time.monotonic() + GRACE_S
        while (processes := self._all()) and time.monotonic() < until:
            time.sleep(0.1)
        left = []
        for process in processes:
            with suppress(psutil.Error):
                left.append(f"{process.pid} {' '.join(process.cmdline())}"[:100])
        return left


def _found(folder: Path, late: bool) -> dict[str, Any]:
    outcome = folder / "outcome.json"
    if late:
        return {"outcome": "hang", "error": f"after its deadline: {_tail(folder)}"}
    if not outcome.exists():
        return {"outcome": "failed", "error": f"died: {_tail(folder)}"}
    found: dict[str, Any] = json.loads(outcome.read_text(encoding="utf-8"))
    return found


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def _stacks(processes: list[psutil.Process], folder: Path) -> str:
    """Of each of its Pythons, one after the other; who has not answered within a second does not."""
    file, said = folder / "stacks.txt", []
    for process in sorted(processes, key=lambda one: one.pid):
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
    output = folder / "output.txt"
    if not output.exists():
        return ""
    return " / ".join(output.read_text(encoding="utf-8", errors="replace").splitlines()[-3:])[-400:]
