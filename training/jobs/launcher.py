"""What the supervisor starts jobs by: the interface, and the launcher of this machine, which keeps a fork server ready,
orders jobs from it, hears how they end, and notices that its sources are out of date.
"""

import json
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path
from signal import SIGKILL
from typing import Final, Literal

from scalebook.training.base import Children, ProcessId, Workspace, processes
from scalebook.training.jobs.begin_request import RemoteJobContext
from scalebook.training.jobs.devices import Allocation
from scalebook.training.jobs.fork_server import PACKET, Order, Report
from scalebook.training.jobs.job_environment import DEFAULTS
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.leases import Lease


@dataclass(frozen=True)
class ProcessEnded:
    """The process started for a job has ended.

    `code` is its exit code, or minus the number of the signal that ended it; `problem` says why it could not start, for
    people.
    """

    job: str
    code: int
    problem: str = ""


@dataclass(frozen=True)
class LauncherLost:
    """What starts jobs has died. Running jobs go on; jobs that were ordered and have not started never will.

    `ready`: whether it could start jobs before. `problem` is for people.
    """

    ready: bool
    problem: str


Event = ProcessEnded | LauncherLost


class Launcher(ABC):
    """Starts jobs and reports how they end. One process owns it, calls it from one thread, and must `close` it."""

    @property
    @abstractmethod
    def state(self) -> Literal["none", "loading", "ready"]:
        """Whether jobs can be started; `none` before `prepare`, and again after a loss."""

    @abstractmethod
    def prepare(self, fresh: bool) -> bool:
        """Prepare to start jobs, without waiting; True when ready.

        `fresh`: with Scalebook's sources as they are now; a process prepared with older ones is replaced.
        """

    @abstractmethod
    def start(self, job: JobFolder, lease: Lease) -> bool:
        """Start the job on these devices, and on no others; False if that is not possible at present.

        Returns at once. The job has started when its folder names its handle. Call it only after `prepare` returned
        True.
        """

    def join(self, job: JobFolder, lent: Allocation) -> None:
        """Add another node, with these devices, to a running job. Only for executors with several nodes."""
        raise NotImplementedError

    @abstractmethod
    def events(self, wait_s: float) -> list[Event]:
        """The events since the last call; waits at most `wait_s` for one.

        The end of every process that this launcher has started is reported once, also of those started before a loss.
        """

    @abstractmethod
    def close(self) -> None:
        """Start no more jobs until `prepare`; running jobs go on."""


RUNNER = "scalebook.training.cli.runner:run_job"
PRELOAD = (
    "torch",
    "lightning.pytorch",
    "lightning.pytorch.cli",
    "lightning.pytorch.loggers.mlflow",
    "mlflow",
    "mlflow.store.tracking.sqlalchemy_store",
    "sqlalchemy.dialects.sqlite",
    "alembic.command",
    "scalebook.training.cli.lightning_cli",
    "scalebook.training.zoo.models",
    "scalebook.training.zoo.data",
    "scalebook.training.lightning",
)
PACKAGE = Path(__file__).resolve().parents[1]


class ForkServerProcess:
    """A fork server that this process has started and must `close`. `connection` becomes readable when it has reported.

    Its standard output and error go to the end of the file `log`.
    """

    def __init__(
        self, log: Path, runner: str = RUNNER, preload: tuple[str, ...] = PRELOAD, package: Path = PACKAGE
    ) -> None:
        self.package = package
        self.sources = source_stamps(package)
        self.ready = False
        self.closed = False
        self.connection, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection.setblocking(False)
        self.process = _spawn(log, child_socket, runner, preload)
        child_socket.close()

    def alive(self) -> bool:
        return not self.closed and self.process.alive()

    def order(self, order: Order) -> bool:
        """Order a job; False if the fork server is gone and the job must wait for the next one."""
        try:
            self.connection.send(json.dumps(asdict(order)).encode())
        except OSError:
            return False
        return True

    def reports(self) -> list[Report]:
        """The reports since the last call. Closes this end if the fork server is gone."""
        reports: list[Report] = []
        while not self.closed:
            try:
                packet = self.connection.recv(PACKET)
            except BlockingIOError:
                break
            except ConnectionError:
                packet = b""
            if not packet:
                self.close()
                break
            reports.append(Report(**json.loads(packet)))
        self.ready = self.ready or any(report.event == "ready" for report in reports)
        return reports

    def out_of_date(self) -> bool:
        """Whether any source file of the package has changed since it was started."""
        return source_stamps(self.package) != self.sources

    def close(self) -> None:
        """End it; it holds no state. Jobs that it has forked go on and become children of this process."""
        if not self.closed:
            self.closed = True
            self.connection.close()
            self.process.send(SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self.process.pid, 0)


def _spawn(log: Path, child_socket: socket.socket, runner: str, preload: tuple[str, ...]) -> ProcessId:
    words = ["--socket", "3", "--parent", str(os.getpid()), "--runner", runner, "--preload", ",".join(preload)]
    module = "scalebook.training.jobs.fork_server"
    with log.open("ab") as output:
        return processes.start(module, *words, log=output.fileno(), socket=child_socket.fileno(), environ=DEFAULTS)


def source_stamps(package: Path) -> frozenset[tuple[str, int, int]]:
    """Path, modification time and size of every Python file of a package."""
    stamps = set()
    for path in package.rglob("*.py"):
        with suppress(FileNotFoundError):  # replaced just now
            stat = path.stat()
            stamps.add((str(path), stat.st_mtime_ns, stat.st_size))
    return frozenset(stamps)


LOAD_DEADLINE_S: Final = 120.0


class LocalLauncher(Launcher):
    """Owns the fork server. When one dies, or is replaced, its jobs become children of this process."""

    def __init__(
        self,
        workspace: Workspace,
        children: Children,
        runner: str | None = None,
        preload: Sequence[str] | None = None,
        package: Path = PACKAGE,
    ) -> None:
        self.workspace, self.children = workspace, children
        self._log = workspace.hidden / "supervisor.log"
        self._runner, self._preload = runner or RUNNER, tuple(PRELOAD if preload is None else preload)
        self._package = package
        self._warm: ForkServerProcess | None = None
        self._loading_since = 0.0
        self._running: dict[str, JobFolder] = {}
        """Jobs ordered from this fork server whose end it has not reported."""
        self._orphans: dict[str, JobFolder] = {}
        """The same of earlier fork servers."""

    @property
    def state(self) -> Literal["none", "loading", "ready"]:
        if self._warm is None:
            return "none"
        return "ready" if self._warm.ready else "loading"

    def prepare(self, fresh: bool) -> bool:
        if self._warm is not None and fresh and self._warm.ready and self._warm.out_of_date():
            self.close()
        if self._warm is None:
            self._warm = ForkServerProcess(self._log, self._runner, self._preload, self._package)
            self._loading_since = time.monotonic()
        return self._warm.ready

    def start(self, job: JobFolder, lease: Lease, away: RemoteJobContext | None = None) -> bool:
        """Start the job. `away`: for a job of another node's workspace, of which `job` is a copy."""
        assert self._warm is not None, "prepare first"
        root, context = job.path.parents[2], None if away is None else asdict(away)
        ordered = self._warm.order(Order(str(job.path), str(root), lease.cores, lease.gpus, context))
        if ordered:
            self._running[job.id] = job
        return ordered

    def events(self, wait_s: float) -> list[Event]:
        events: list[Event] = []
        if self._warm is None:
            time.sleep(wait_s)
        else:
            wait([self._warm.connection], wait_s)  # not select(2), which knows no descriptor above 1023
            events += self._reports(self._warm)
        return [*events, *self._ended_orphans()]

    def close(self) -> None:
        if self._warm is not None:
            self._warm.close()
            self._warm = None
        self._orphans |= self._running
        self._running = {}

    def _reports(self, warm: ForkServerProcess) -> list[Event]:
        events: list[Event] = []
        for report in warm.reports():
            if report.event == "ended":
                self._running.pop(report.job, None)
                events.append(ProcessEnded(report.job, report.code, report.problem))
            elif report.threads != 1:
                print(
                    f"scalebook: the fork server has {report.threads} threads, but a forked process keeps only one",
                    flush=True,
                )
        if warm.closed:
            events.append(self._lost(warm.ready, "ended"))
        elif not warm.ready and time.monotonic() - self._loading_since > LOAD_DEADLINE_S:
            events.append(self._lost(False, f"was not ready after {LOAD_DEADLINE_S:g} s"))
        return events

    def _lost(self, ready: bool, how: str) -> LauncherLost:
        self.close()
        problem = f"the fork server, which starts runs, {how}: {_last_line(self._log)}"
        print(f"scalebook: the fork server {how}", flush=True)
        return LauncherLost(ready, problem)

    def _ended_orphans(self) -> list[Event]:
        """It looks for dead processes before their exit codes, so that every dead one has been reaped."""
        handles = {name: started.handle for name, job in self._orphans.items() if (started := job.started())}
        dead = {name: handle for name, handle in handles.items() if not handle.process.alive()}
        if dead:
            self.children.reap()
        for name in dead:
            del self._orphans[name]
        codes = {name: self.children.pop_exit_code(handle.process.pid) for name, handle in dead.items()}
        return [ProcessEnded(name, code) for name, code in codes.items() if code is not None]


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 4096))
        lines = file.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
