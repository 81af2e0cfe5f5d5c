"""The description of a workspace, made by a process that may import torch, and kept until something changes."""

import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

import psutil

import scalebook
from scalebook.training.base import SETTINGS, ConfigError, Workspace, extras, safe_path, source_files, trust
from scalebook.training.base.files import locks, records
from scalebook.training.experiments.description import Description

DEADLINE_S: Final = 120.0
"""A description is given up after so much computing, and after so long without any, s. It takes 6 s of computing, which
last for minutes on a busy machine."""
LONGEST_S: Final = 1200.0
"""The same, whatever it does, s."""
CPU_S: Final = 0.2
READ_BYTES: Final = 2**18
"""So much computing, or reading, is progress."""
LOOK_S: Final = 0.5
SAY_EVERY_S: Final = 10.0
LOCK: Final = "describe.lock"
"""Held by the process that makes the description, which writes its pid into it, and stamps it with the time since boot
while it makes progress."""

READ: Final = re.compile(r"""(?:environ(?:\.\w+\(|\[)|getenv\()\s*["'](\w+)["']""")
"""Python that looks up an environment variable."""
DESCRIBED: Final = (
    "zoo", "lightning", "engine/rules", "experiments/description.py", "experiments/introspect.py",
    "experiments/known_classes.py", "experiments/logged.py", "cli/describe.py",
)  # fmt: skip
"""Our own sources on which the description depends, below `training/`."""


def describe(workspace: Workspace) -> Description:
    """The description of `workspace`: from its cache (about 5 ms), else by `python -m scalebook describe` (about 6 s).

    Of several processes that need it at the same time, one makes it, and the others wait for its result. If that one
    dies, another takes over. Raises ConfigError where the user's modules make `describe` fail as a whole or run past
    its deadline.
    """
    path = _kept(workspace)
    if (description := records.peek(path, Description)) is None:
        with _turn(workspace) as note_progress:
            description = records.peek(path, Description) or _made(workspace, path, note_progress)
    return _of(workspace, description)


@contextmanager
def _turn(workspace: Workspace) -> Iterator[Callable[[], None]]:
    """Hold the lock; yields what its holder calls when it makes progress."""
    workspace.create()
    try:
        lock = locks.opened(workspace.cache / LOCK)
    except OSError:  # no room for a file: each process makes a description of its own
        yield lambda: None
        return
    try:
        _wait_for(lock, workspace)
        _stamp(lock)
        os.pwrite(lock, f"{os.getpid():<10}".encode(), 0)
        yield partial(_stamp, lock)
    finally:
        os.close(lock)


def _stamp(lock: int) -> None:
    now = time.monotonic_ns()
    os.utime(lock, ns=(now, now))


def _wait_for(lock: int, workspace: Workspace) -> None:
    began = said = time.monotonic()
    while not locks.acquired(lock, LOOK_S):
        now, holder = time.monotonic(), os.pread(lock, 10, 0).decode("ascii", "replace").strip()
        still_s = now - max(began, os.fstat(lock).st_mtime)
        if still_s > DEADLINE_S + SAY_EVERY_S:  # its holder itself gives up before that, unless it is suspended
            stands = f"is waiting for process {holder}, which has made no progress for {still_s:.0f} s"
            raise ConfigError("describe", stands, f"End that process with `kill {holder}`, then try again.")
        if now - said > SAY_EVERY_S:
            said = now
            what = f"another command (process {holder}) is reading the models and strategies of {workspace.root}"
            print(
                f"scalebook: {what}. This command has been waiting for {now - began:.0f} s",
                file=sys.stderr,
                flush=True,
            )


def _made(workspace: Workspace, path: Path, note_progress: Callable[[], None]) -> Description:
    command = safe_path.python("-m", "scalebook", "describe", "--workspace", str(workspace.root.resolve()))
    try:
        printed = _run(command, note_progress)
    except subprocess.TimeoutExpired as error:
        took = f"took more than {DEADLINE_S:g} s of CPU time, or made no progress for {DEADLINE_S:g} s"
        if not workspace.settings.modules:
            raise ConfigError("describe", took, "Other programs keep this machine busy. Try again later.") from error
        fix = "Move slow work out of the top level of these modules, or try again when the machine is less busy."
        raise ConfigError(SETTINGS, f"lists modules whose import {took}", fix) from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or "no message").splitlines()[-1]
        raise ConfigError("describe", f"failed: {last}", "Run `scalebook describe` to see the full message.") from error
    description = records.parse(path, printed.encode(), Description)
    for old in workspace.cache.glob("describe-*.json"):
        old.unlink(missing_ok=True)
    with suppress(OSError):  # no room to keep it: the next one takes 6 s again
        records.save(path, description)
    return description


def _run(command: Sequence[str], note_progress: Callable[[], None]) -> str:
    """What the command prints. Raises TimeoutExpired and CalledProcessError, as `subprocess.run` does."""
    began = moved = said = time.monotonic()
    mark = 0.0, 0
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=safe_path.HOME,
        env=safe_path.environment(),
    ) as process:
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    printed, errors = process.communicate(timeout=LOOK_S)
                    break
                now, (cpu_s, read) = time.monotonic(), _activity(process.pid)
                if cpu_s - mark[0] > CPU_S or read - mark[1] > READ_BYTES:
                    mark, moved = (cpu_s, read), now
                    note_progress()
                if cpu_s > DEADLINE_S or now - moved > DEADLINE_S or now - began > LONGEST_S:
                    raise subprocess.TimeoutExpired(command, DEADLINE_S)
                if now - said > SAY_EVERY_S:
                    said, took = now, f"{now - began:.0f} s so far, including {cpu_s:.0f} s of CPU time"
                    print(f"scalebook: reading the models and strategies ({took})", file=sys.stderr, flush=True)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, printed, errors)
    return printed


def _activity(pid: int) -> tuple[float, int]:
    """What a process has computed, s, and read, bytes."""
    try:
        process = psutil.Process(pid)
        return sum(process.cpu_times()[:4]), process.io_counters().read_chars
    except psutil.Error:  # it has just ended
        return 0.0, 0


def is_kept(workspace: Workspace) -> bool:
    """Whether `describe` has its answer in the cache."""
    return _kept(workspace).exists()


def _kept(workspace: Workspace) -> Path:
    return workspace.cache / f"describe-{content_hash(workspace)}.json"


def _of(workspace: Workspace, description: Description) -> Description:
    """`description` with the folder and whether it is trusted, which no cache within the folder may say."""
    clustered = workspace.settings.clustered
    return replace(
        description, folder=str(workspace.root.resolve()), trusted=trust.trusted(workspace), clustered=clustered
    )


def content_hash(workspace: Workspace) -> str:
    """A hash of all that the description depends on: versions, extras, settings, the sources' sizes and times, and the
    environment variables that the user's modules name, which may be defaults of arguments."""
    digest = hashlib.sha256(f"{scalebook.__version__} {sys.version} {extras.missing_modules()}".encode())
    settings = workspace.root / SETTINGS
    digest.update(settings.read_bytes() if settings.is_file() else b"")
    digest.update(b"trusted" if workspace.settings.modules and trust.trusted(workspace) else b"")
    for path in [*_own_sources(), *source_files(workspace)]:
        facts = path.stat()
        digest.update(f"{path} {facts.st_mtime_ns} {facts.st_size}".encode())
    for path in source_files(workspace):
        for name in _variables(path, path.stat().st_mtime_ns):
            digest.update(f"{name}={os.environ.get(name)!r}".encode())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=4096)
def _variables(path: Path, changed: int) -> list[str]:
    """The environment variables that a source file names, as it was when it was changed."""
    return sorted(set(READ.findall(path.read_text(encoding="utf-8", errors="replace"))))


def _own_sources() -> list[Path]:
    root = Path(__file__).resolve().parents[1]
    return sorted(
        path for name in DESCRIBED for path in ([root / name, *(root / name).rglob("*.py")]) if path.is_file()
    )
