"""The monitor's watch over the processes of a run: which have ended or died, and what follows."""

import logging
import math
import mmap
import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from multiprocessing.connection import wait
from pathlib import Path
from time import monotonic, sleep, strftime
from typing import Any, Final, NamedTuple

from scalebook.training.base import ProcessLost, ServerLost, TimedOut, WorkerLost
from scalebook.training.lightning.processes.forked import (
    GRACE_S,
    Body,
    Forked,
    Role,
    Terminated,
    WorkerTraceback,
    fork,
    has_mark,
    holding_back_sigterm,
    new_mark,
)
from scalebook.training.lightning.processes.peer_monitor import NONE, PeerMonitor

_EVERY_S: Final = 0.01  # between two looks at processes that are about to be gone


class ProcessActivity(NamedTuple):
    """What a process has used since its start: CPU time, s, and bytes read and written."""

    cpu_s: float
    moved_bytes: int


NOTHING: Final = ProcessActivity(0.0, 0)
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


def descendants(pid: int, children_only: bool = False) -> list[int]:
    """The pids of all descendants of `pid`, each after its parent, zombies included."""
    below: dict[int, list[int]] = {}
    for folder in os.listdir("/proc"):
        if folder.isdigit() and (fields := _stat(int(folder))):
            below.setdefault(int(fields[1]), []).append(int(folder))
    pids = below.get(pid, [])[:]
    if not children_only:
        for child in pids:
            pids += below.get(child, [])
    return pids


def done(pid: int) -> ProcessActivity:
    """What one process has used, without its descendants; zeros if it has ended or belongs to another user."""
    if not (fields := _stat(pid)):
        return NOTHING
    cpu_s = (int(fields[11]) + int(fields[12])) * _TICK_S
    try:
        counts = dict(line.split(b": ") for line in Path(f"/proc/{pid}/io").read_bytes().splitlines())
    except OSError:
        return ProcessActivity(cpu_s, 0)
    return ProcessActivity(cpu_s, int(counts[b"rchar"]) + int(counts[b"wchar"]))


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    return (fields := _stat(pid)) != [] and fields[0] not in (b"Z", b"X")


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat behind the name, beginning with the state (proc(5): field 3); none if the process
    has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def kill_and_wait(pids: Iterable[int], timeout_s: float) -> None:
    """Kill descendants of this process; return when all are gone, or after `timeout_s`."""
    pids = list(pids)
    for pid in pids:
        with suppress(ProcessLookupError):  # it ended by itself
            os.kill(pid, signal.SIGKILL)
    until = monotonic() + timeout_s
    while pids and monotonic() < until:
        pids = [pid for pid in pids if not _gone(pid)]
        if pids:
            sleep(_EVERY_S)


def _gone(pid: int) -> bool:
    with suppress(ChildProcessError):  # not ours to wait for
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return not is_running(pid)


LIMIT_S: Final = 60.0
"""Before training, so long without activity of any process ends the run, s."""
CPU_S: Final = 0.2  # a sign of life; a worker that waits at a rendezvous uses a tenth of it in LIMIT_S
MOVED_BYTES: Final = 256 * 1024  # read or written, also one


class StallDetector:
    """Measures for how long no process of a run has computed, read or written. Time in which the monitor is suspended
    does not count."""

    def __init__(self) -> None:
        self._mark: dict[int, ProcessActivity] = {}
        self._still_s, self._looked = 0.0, monotonic()

    def seconds(self, pids: Iterable[int]) -> float:
        """Seconds without activity until now. Call it about once a second; it checks twelve times in LIMIT_S."""
        now, every = monotonic(), LIMIT_S / 12
        if now - self._looked < every:
            return self._still_s
        elapsed, self._looked = min(now - self._looked, 2 * every), now
        mark = {pid: _all_done(pid) for pid in pids}
        if mark.keys() != self._mark.keys() or any(_alive(self._mark[pid], mark[pid]) for pid in mark):
            self._mark, self._still_s = mark, 0.0
        else:
            self._still_s += elapsed
        return self._still_s


def _alive(before: ProcessActivity, now: ProcessActivity) -> bool:
    return abs(now.cpu_s - before.cpu_s) > CPU_S or abs(now.moved_bytes - before.moved_bytes) > MOVED_BYTES


def _all_done(pid: int) -> ProcessActivity:
    """What a process and all below it have done, together."""
    every = [done(process) for process in (pid, *descendants(pid))]
    return ProcessActivity(
        sum(process_done.cpu_s for process_done in every), sum(process_done.moved_bytes for process_done in every)
    )


_SUSPENDED_S: Final = 2.0  # between two looks at which processes are suspended
STOP_S: Final = 20.0  # between a SIGTERM passed on to a worker and the end of all, whatever it does
ECHO_S: Final = 0.3  # how long after an exception a death that caused it may show
DIES_S: Final = 0.1  # from the end of a process's pipe to its own
ECHOES: Final = ("Connection closed by peer", "Connection reset by peer")
"""What gloo says in a worker that waits for one that has ended."""


class LostProcess(NamedTuple):
    """A process that died without a result; `cause` names its pid and the signal or exit code."""

    role: Role
    number: int
    cause: str

    def error(self) -> ProcessLost:
        """The exception that ends the run because of this loss."""
        return WorkerLost(self.number, self.cause) if self.role == "worker" else ServerLost(self.number, self.cause)


class Reaction(Enum):
    """What the monitor does after a death: end the run, go on without the process, or restart it."""

    END = auto()
    GO_ON = auto()
    RESTART = auto()


Policy = Callable[[LostProcess], Reaction]
Arrivals = Callable[[], Sequence[int] | None]
"""How many meetings before training each worker has reached; None once training has begun."""
Waits = Callable[[], Mapping[int, str]]
"""Worker -> what it waits for, for waits in which nothing has happened for a minute."""
log = logging.getLogger(__name__)


class ProcessWatch:
    """Forks the processes of a run and watches them. Used by one thread of one process, the monitor."""

    def __init__(
        self,
        bodies: Mapping[Role, Body],
        lost: Policy,
        threads: int,
        arrivals: Arrivals,
        waits: Waits,
        others: PeerMonitor = NONE,
    ) -> None:
        self._bodies, self._policy, self._threads, self._arrivals = bodies, lost, threads, arrivals
        self._waits, self._others = waits, others
        self._stillness = StallDetector()
        self._said: Mapping[int, str] = {}  # what they wait for
        self._said_still = False
        self._suspended: set[tuple[Role, int]] = set()
        self._looked = monotonic()
        self._mark = new_mark()
        self._forked: dict[tuple[Role, int], Forked] = {}  # everybody whose process is not known to be gone
        self._running: dict[tuple[Role, int], Forked] = {}  # of these, whoever has not said a last word
        self._results: dict[int, Any] = {}
        self._numbers: Sequence[int] = ()  # of the workers
        self.stopping = threading.Event()  # a SIGTERM has come
        self._until = math.inf
        self._terminated = mmap.mmap(-1, 1)  # for `why_terminated` in the processes

    def start(self, role: Role, number: int) -> None:
        """Fork one process."""
        with holding_back_sigterm() as mask:  # until it is known here, so that a SIGTERM can reach it
            others, body = list(self._forked.values()), self._bodies[role]
            process = fork(role, number, body, self._threads, others, mask, self._mark, self._terminated)
            self._forked[role, number] = self._running[role, number] = process

    def pass_on(self, number: int) -> None:
        """Let a SIGTERM reach the first running worker: worker 0 unless it was lost."""
        self.stopping.set()
        workers = [worker for (role, _), worker in sorted(self._running.items()) if role == "worker"]
        if workers and (pid := workers[0].process.pid) is not None:
            self._terminated[0] = max(self._terminated[0], Terminated.PASSED_ON)
            os.kill(pid, number)

    def results(self, numbers: Sequence[int]) -> list[Any]:
        """Wait for all workers and return what each of `numbers` returned, None for a lost one. `WorkerLost` if all
        were lost."""
        last: LostProcess | None = None
        self._numbers = numbers
        while self._some("worker"):
            for process in self._ready(self._others.look_s()):
                last = self._take(process) or last
            self._check_stop()
            self._check_still()
            self._check_suspended()
            self._others.check(self.stopping.is_set())
            for number in () if self.stopping.is_set() else self._others.joining():
                self.start("worker", number)
        if last is not None and not self._results:
            raise last.error()
        self._others.announce_end()
        self._let_servers_end()
        until = monotonic() + GRACE_S
        for key in self._forked.keys() - self._running.keys():  # time to close files; a result was sent before
            wait([self._forked[key].death], max(0.0, until - monotonic()))
        return [self._results.get(number) for number in numbers]

    def terminate_all(self) -> None:
        """End all processes (SIGTERM, then SIGKILL after a grace period) and those that they have started. Waits for
        each."""
        self._terminated[0] = Terminated.BY_MONITOR
        for process in self._forked.values():
            if process.process.is_alive():
                process.process.terminate()
        until = monotonic() + GRACE_S
        for process in self._forked.values():
            process.terminate(until - monotonic())
        self._forked.clear()
        self._running.clear()
        self._end_orphans()

    def _some(self, role: Role) -> bool:
        return any(running == role for running, _ in self._running)

    def _ready(self, timeout_s: float) -> list[Forked]:
        """The processes that have sent a last message or have died; waits for the first."""
        running = list(self._running.values())
        ready = wait([p.messages for p in running] + [p.death for p in running], timeout_s)
        return [p for p in running if p.messages in ready or p.death in ready]

    def _take(self, process: Forked) -> LostProcess | None:
        """Deal with the message or death of one process. The loss, if nothing takes its place, else None."""
        ended = process.last_message()
        if ended is None:
            return self._lost(process)
        if ended.error is not None:
            self._prefer_the_cause(process, ended.error)
            raise ended.error from WorkerTraceback(process.role, process.number, ended.text, ended.result)
        if process.role == "worker":
            self._results[process.number] = ended.result
        del self._running[process.role, process.number]
        return None

    def _lost(self, process: Forked) -> LostProcess | None:
        """Ask the policy what to do about a death, and do it. The loss, if nothing takes the process's place, else
        None."""
        lost, reaction = self._ask(process)
        if reaction is Reaction.END:
            raise lost.error()
        key = process.role, process.number
        del self._running[key], self._forked[key]
        self._others.send_heartbeat()
        process.terminate(GRACE_S)
        if restarts := reaction is Reaction.RESTART and not self.stopping.is_set():
            self.start(*key)
        self._end_orphans()
        return None if restarts or process.role == "server" else lost

    def _ask(self, process: Forked) -> tuple[LostProcess, Reaction]:
        if not wait([process.death], DIES_S):  # who dies slowly is waited for
            self._others.send_heartbeat()
        lost = LostProcess(process.role, process.number, process.cause())
        if self.stopping.is_set() and process.exit_code() == -signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)  # asked to stop before training had begun
        return lost, self._policy(lost)

    def _prefer_the_cause(self, failed: Forked, error: BaseException) -> None:
        """When a process raises because another has died or ended with an error: report that instead, if it would end
        the run."""
        others = [p for p in self._running.values() if p is not failed]
        ready = wait([p.death for p in others], timeout=ECHO_S)
        for other in others:
            if other.death not in ready:
                continue
            if (ended := other.last_message()) is None:
                lost, reaction = self._ask(other)
                if reaction is Reaction.END:
                    raise lost.error()
            elif ended.error is not None and _is_echo(error) and not _is_echo(ended.error):
                raise ended.error from WorkerTraceback(other.role, other.number, ended.text, ended.result)

    def _let_servers_end(self) -> None:
        """Their workers have ended, so they do too, within GRACE_S. A death no longer matters, an exception does."""
        until = monotonic() + GRACE_S
        while self._some("server") and (left_s := until - monotonic()) > 0:
            for process in self._ready(left_s):
                ended = process.last_message()
                del self._running[process.role, process.number]
                if ended is not None and ended.error is not None:
                    raise ended.error from WorkerTraceback(process.role, process.number, ended.text, ended.result)
            self._check_stop()

    def _check_stop(self) -> None:
        if self.stopping.is_set():
            self._until = min(self._until, monotonic() + STOP_S)
        if monotonic() > self._until:
            raise SystemExit(128 + signal.SIGTERM)

    def _check_still(self) -> None:
        """When no process has done anything for LIMIT_S seconds: before training TimedOut, naming the workers that did
        not come; then a warning that says where each stands, as when one waits so long for others."""
        pids = [process.process.pid for process in self._running.values() if process.process.pid is not None]
        is_still = self._stillness.seconds(pids) >= LIMIT_S
        counts = self._arrivals()
        if counts is None:
            self._say_waits(is_still)
            return
        arrivals = dict(zip(self._numbers, counts, strict=False))
        workers = {number: worker for (role, number), worker in sorted(self._running.items()) if role == "worker"}
        if not workers or not is_still:
            return
        first = min(arrivals[number] for number in workers)
        missing = {number: worker for number, worker in workers.items() if arrivals[number] == first}
        raise TimedOut(
            f"worker {' and '.join(map(str, missing))} did not reach the start of training, and for "
            f"{LIMIT_S:g} s no process of the run made progress. Do slow setup work before fit."
            + "".join(f"\n\nworker {n} (process {p.process.pid}) is at:\n{self._stack(p)}" for n, p in missing.items())
        )

    def _check_suspended(self) -> None:
        """Warn once of each process that is suspended, by SIGSTOP or a debugger, and once when it goes on."""
        if monotonic() - self._looked < _SUSPENDED_S:
            return
        self._looked = monotonic()
        living = {key: process.process.pid for key, process in self._running.items() if process.process.pid is not None}
        suspended = {key for key, pid in living.items() if _stat(pid)[:1] in ([b"T"], [b"t"])}
        for role, number in sorted(suspended - self._suspended):
            pid, now = living[role, number], strftime("%H:%M:%S")
            log.warning(
                "%s %d (process %d) is suspended since %s; `kill -CONT %d` resumes it.", role, number, pid, now, pid
            )
        for role, number in sorted((self._suspended - suspended) & living.keys()):
            log.warning("%s %d (process %d) is no longer suspended.", role, number, living[role, number])
        self._suspended = suspended

    def _say_waits(self, is_still: bool) -> None:
        """Warn once of each wait in which nothing happens, and once when the whole run is still."""
        waits = self._waits()
        if not waits.keys() - self._said.keys() and is_still <= self._said_still:
            self._said, self._said_still = waits, is_still
            return
        self._said, self._said_still = waits, is_still
        who = "; ".join(waits.values()) or "no process of the run has done anything"
        stacks = [
            f"\n\n{role} {number} (process {process.process.pid}) is at:\n{self._stack(process)}"
            for (role, number), process in sorted(self._running.items())
        ]
        log.warning("%s: nothing has happened for %g s.%s", who, LIMIT_S, "".join(stacks))

    def _stack(self, process: Forked) -> str:
        """Which may take seconds, of each of many."""
        self._others.send_heartbeat()
        return process.stack()

    def _end_orphans(self) -> None:
        """End what a dead process had started, which has become a child of the monitor. Its other children belong to
        other threads of the user's script."""
        own_pids = {process.process.pid for process in self._forked.values()}
        children = set(descendants(os.getpid(), children_only=True)) - own_pids
        orphans = [pid for pid in children if has_mark(pid, self._mark)]
        kill_and_wait([pid for orphan in orphans for pid in (orphan, *descendants(orphan))], GRACE_S)


def _is_echo(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and any(words in str(error) for words in ECHOES)
