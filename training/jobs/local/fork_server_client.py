"""The supervisor's end of the fork server: start it, send orders, receive reports, notice that it is out of date."""

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from signal import SIGKILL

from scalebook.training.jobs.local.fork_server import PACKET, Order, Report
from scalebook.training.jobs.process import ProcessId, alive, send, start

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
PACKAGE = Path(__file__).resolve().parents[2]
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""numpy and pyarrow (through mlflow) start threads when they are imported, unless these say otherwise."""


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
        return not self.closed and alive(self.process)

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
            send(self.process, SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self.process.pid, 0)


def _spawn(log: Path, child_socket: socket.socket, runner: str, preload: tuple[str, ...]) -> ProcessId:
    words = ["--socket", "3", "--parent", str(os.getpid()), "--runner", runner, "--preload", ",".join(preload)]
    environ = {**ONE_THREAD, "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "1"}
    module = "scalebook.training.jobs.local.fork_server"
    with log.open("ab") as output:
        return start(module, *words, log=output.fileno(), socket=child_socket.fileno(), environ=environ)


def source_stamps(package: Path) -> frozenset[tuple[str, int, int]]:
    """Path, modification time and size of every Python file of a package."""
    stamps = set()
    for path in package.rglob("*.py"):
        with suppress(FileNotFoundError):  # replaced just now
            stat = path.stat()
            stamps.add((str(path), stat.st_mtime_ns, stat.st_size))
    return frozenset(stamps)
