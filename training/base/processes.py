"""Scalebook's processes: starting one, recognising it safely, whether it lives, what is left of its session.

Processes are recognised by ticks since boot, so setting the wall clock does no harm.
"""

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import IO, Any, NamedTuple, NoReturn

import psutil

from scalebook.training.base.safe_path import HOME, environment, python

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
LARGEST_PID = 2**22  # linux/threads.h, PID_MAX_LIMIT
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
KEPT_S = 10.0
"""How long a child's exit code is kept, s: much shorter than until its pid can be reused."""


class _Facts(NamedTuple):
    state: str
    parent: int
    session: int
    start: int


@dataclass(frozen=True)
class ProcessId:
    """Identifies one process for ever: its pid, which may be reused, with its start time and the boot."""

    pid: int
    start: int
    """Clock ticks from boot to the process's start (field 22 of `/proc/PID/stat`)."""
    boot: str
    """The boot: the kernel's random id."""

    @classmethod
    def of(cls, pid: int | None = None) -> "ProcessId":
        """This process, or the live process `pid`; raises psutil.NoSuchProcess."""
        pid = os.getpid() if pid is None else pid
        facts = _look(pid)
        if facts is None:
            raise psutil.NoSuchProcess(pid)
        return cls(pid, facts.start, boot_id())

    def alive(self) -> bool:
        """Whether it runs; a zombie does not."""
        facts = _look(self.pid)
        return facts is not None and facts.state not in "ZX" and self._same(facts)

    def stopped(self) -> bool:
        """Whether it lives and is suspended: by SIGSTOP or Ctrl+Z (T), or by a debugger (t)."""
        facts = _look(self.pid)
        return facts is not None and facts.state in "Tt" and self._same(facts)

    def writes_to(self, files: Iterable[Path]) -> bool:
        """Whether it lives and has one of these files open for writing.

        A record that names a process may come from a stranger, or with a copy of its folder; an open file proves that
        the process works there. Links are not followed. False for a process that this user may not inspect.
        """
        wanted = set()
        for path in files:
            with suppress(OSError, ValueError):
                facts = path.lstat()
                wanted.add((facts.st_dev, facts.st_ino))
        try:
            names = os.listdir(f"/proc/{self.pid}/fd") if wanted and self.alive() else []
        except OSError:
            return False
        return any(_is_written(self.pid, name, wanted) for name in names) and self.alive()

    def session(self) -> "list[ProcessId]":
        """The live processes of the session that this one leads, itself included; also after its death.

        A session's number is its leader's pid. The kernel does not reuse that pid while the session has members; after
        that another process may get it, and even lead a session.
        """
        if self.boot != boot_id():
            return []
        facts = _look(self.pid)
        if facts is not None and facts.start != self.start:
            return []  # the pid is another process by now
        members = ((pid, facts_) for pid, facts_ in _everybody().items() if facts_.session == self.pid)
        return [ProcessId(pid, facts_.start, self.boot) for pid, facts_ in members if facts_.start >= self.start]

    def descendants(self) -> "list[ProcessId]":
        """All live descendants of a live process, in whatever session."""
        if not self.alive():
            return []
        everybody = _everybody()
        family = [self.pid]
        for parent in family:
            family += [pid for pid, facts in everybody.items() if facts.parent == parent]
        return [ProcessId(pid, everybody[pid].start, self.boot) for pid in family[1:]]

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to exactly this process, never to a later one with its pid; False if it is gone."""
        if not 0 < self.pid <= LARGEST_PID:
            return False
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    def _same(self, facts: _Facts) -> bool:
        return facts.start == self.start and self.boot == boot_id()


def _look(pid: int) -> _Facts | None:
    """What the kernel says of a process; None where there is none. Its name, in brackets, may hold anything."""
    if not 0 < pid <= LARGEST_PID:
        return None
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            content = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    words = content[content.rfind(b")") + 2 :].split()
    return _Facts(words[0].decode(), int(words[1]), int(words[3]), int(words[19]))


@lru_cache(maxsize=1)
def boot_id() -> str:
    return BOOT_ID.read_text(encoding="ascii").strip()


def _is_written(pid: int, descriptor: str, wanted: set[tuple[int, int]]) -> bool:
    try:
        facts = os.stat(f"/proc/{pid}/fd/{descriptor}")
        if (facts.st_dev, facts.st_ino) not in wanted:
            return False
        lines = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text(encoding="ascii").splitlines()
    except OSError:  # closed meanwhile
        return False
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags:")), "0")
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _everybody() -> dict[int, _Facts]:
    """All processes that live, by pid."""
    facts_ = {int(name): _look(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return {pid: facts for pid, facts in facts_.items() if facts is not None and facts.state not in "ZX"}


def reap() -> dict[int, int]:
    """Reap every ended child, adopted orphans included: pid -> exit code or -signal."""
    exit_codes: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return exit_codes
        if pid == 0:
            return exit_codes
        exit_codes[pid] = os.waitstatus_to_exitcode(status)


class Children:
    """How this process's children ended, kept for KEPT_S for whoever started them."""

    def __init__(self) -> None:
        self._codes: dict[int, tuple[float, int]] = {}

    def reap(self) -> None:
        """Reap every ended child, adopted orphans included. Never blocks."""
        now = time.monotonic()
        self._codes = {pid: ended for pid, ended in self._codes.items() if now - ended[0] < KEPT_S}
        self._codes |= {pid: (now, code) for pid, code in reap().items()}

    def pop_exit_code(self, pid: int) -> int | None:
        """The child's exit code, or minus the number of the signal that ended it; None if its end has not been seen."""
        _, code = self._codes.pop(pid, (0.0, None))
        return code


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, which should be `parent`, dies; exits if it has already."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(0)


def adopt_orphans() -> None:
    """Make orphans among this process's descendants its children, so that it can reap them: no zombies."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, argument: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def start(
    module: str,
    *arguments: str,
    log: int | None = None,
    socket: int | None = None,
    leads: bool = False,
    environ: Mapping[str, str] = MappingProxyType({}),
    base: Mapping[str, str] | None = None,
) -> ProcessId:
    """Start `python -m MODULE ARGUMENTS` as a child of this process, which must reap it (`Children`).

    `log`: the descriptor to which it prints, instead of this process's output; its input is then empty. `socket`:
    passed on as descriptor 3. `leads`: in a session of its own. `environ`: further environment variables. `base`: the
    variables to which these are added, as `environment` once gave them; None: those of this process.
    """
    actions: list[tuple[Any, ...]] = []
    if log is not None:
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, log, output) for output in (1, 2)]
    if socket is not None:
        actions.append((os.POSIX_SPAWN_DUP2, socket, 3))
    words = python("-m", module, *arguments)
    variables = environment(**environ) if base is None else {**base, **environ}
    return ProcessId.of(os.posix_spawn(words[0], words, variables, file_actions=actions, setsid=leads))


def start_detached(log: IO[bytes], module: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """Like `start`, in a session of its own, for a process that outlives this one; its output goes to `log`."""
    process = subprocess.Popen(
        python("-m", module, *arguments),
        cwd=HOME,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    # whoever started it must wait for it when it ends, or it would stay a zombie
    threading.Thread(target=process.wait, name=f"wait-for-{module.rpartition('.')[2]}", daemon=True).start()
    return process


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt meanwhile: the command ends as by Ctrl+C, and leaves no run behind. For the
    main thread."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
