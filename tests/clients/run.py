"""One run in a process of its own, with a deadline; afterwards nothing of it is left, or that is said."""

import json
import os
import re
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
OWN_SHARED: Final = ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs tmpfs {SHARED} && exec "$@"', "sh"]
"""Before a command: with a folder of shared memory of its own, so that what is left there is its own."""


class Runs:
    """Runs of one case, one at a time: forks of a process that has imported what the case needs."""

    def __init__(self, case: Case, environment: Environment) -> None:
        self._case, self._nonce, settings = case, uuid.uuid4().hex, dict(SETTINGS)
        settings[NONCE] = self._nonce
        self._has_own_shared = subprocess.run([*OWN_SHARED, "true"], capture_output=True, check=False).returncode == 0
        before: list[str | Path] = [*OWN_SHARED] if self._has_own_shared else []
        self._process = subprocess.Popen(
            [*before, environment.python, "-m", "tests.clients.program", case.name],
            env={**os.environ, **settings}, cwd=ROOT, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
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
        began = time.monotonic()
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
        if self._has_own_shared:
            left += self._left_shared()
        seconds = round(time.monotonic() - began, 1)
        found = {"outcome": "hang", "error": where(stacks)} if late else _found(folder)
        return Result(self._case.name, way, **found, seconds=seconds, left=left, stacks=stacks)

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

    def _left_shared(self) -> list[str]:
        """Files, which are removed."""
        left = []
        with suppress(OSError):  # it has died
            for path in Path(f"/proc/{self._process.pid}/root{SHARED}").iterdir():
                left.append(str(SHARED / path.name))
                path.unlink()
        return left


def where(stacks: str) -> str:
    """Of each process that has forked no others what it was at: the first of our strategies' frames, or the first."""
    places = []
    for one in stacks.split("process ")[1:]:
        frames = re.findall(r'File ".*?((?:lightning/)?[^/"]+/[^/"]+)", line (\d+) in (\w+)', one)
        ours = [frame for frame in frames if frame[0].startswith(("lightning/async_ps/", "lightning/processes/"))]
        frame = next(iter(ours or frames), None)
        if frame is not None and frame[0] != "lightning/processes/process_watch.py":
            places.append(f"{frame[0]}:{frame[1]} {frame[2]}")
    return "; ".join(places)


def _found(folder: Path) -> dict[str, Any]:
    outcome = folder / "outcome.json"
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


def _tail(folder: Path) -> str:
    output = folder / "output.txt"
    if not output.exists():
        return ""
    return " / ".join(output.read_text(encoding="utf-8", errors="replace").splitlines()[-3:])[-400:]
