"""A run before the fork: what its processes share, and the ends that they get.

The monitor, which starts the other processes, makes it; these call `worker` and `server`.
"""

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from torch.nn import Module
from torch.optim import Optimizer

from scalebook.training.engine.coordination.run import SharedRun
from scalebook.training.engine.coordination.worker_messages import SharedExchange, SharedSignals
from scalebook.training.engine.memory.region import ARRIVALS, FINISHED, STARTED, SharedRows, anonymous_file
from scalebook.training.engine.net.connection_handoff import Listener
from scalebook.training.engine.net.handshake import Hello, Secret, ServerTls
from scalebook.training.engine.net.remote_worker_service import RemoteWorkerService
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.sim import SimulatedClock, SimulatedEnd
from scalebook.training.engine.store.server import serve
from scalebook.training.engine.worker.cursor import Cursor
from scalebook.training.engine.worker.shared_end import SharedEnd
from scalebook.training.engine.worker.worker_end import DataCursor, Figures, MessageExchange, SimulationEnd, WorkerEnd

__all__ = ["Launch", "ServerEnd", "anonymous_file"]


class Launch:
    """Anonymous memory that vanishes with the last process that holds it. ArgumentError for
    settings that contradict each other. `seed`: of a virtual run's clock."""

    def __init__(self, workers: int, settings: Settings, seed: int = 0) -> None:
        self._clock = None
        if settings.clock is not None:
            self._clock = SimulatedClock(settings.clock, workers, settings.shards, seed)
        self._run = SharedRun(workers, settings, self._clock)
        self._cursor, self._signals, self._rows = Cursor(workers), SharedSignals(self._run.control), SharedRows(workers)
        self._meetings = SharedExchange(self._run.control)

    @property
    def processes(self) -> int:
        """Worker processes to start: one for each worker, or one that simulates all."""
        return self._run.control.workers if self._clock is None else 1

    @property
    def servers(self) -> int:
        """Server processes to start."""
        return self._run.servers

    @property
    def figures(self) -> Figures:
        """What the run has measured; also after `close`."""
        return self._run

    def post(
        self, worker: int, run: str, listener: Listener, secret: Secret, tls: ServerTls | None
    ) -> RemoteWorkerService:
        """Before the fork: the service for remote worker `worker` (`RemoteEnd`). `run`: a name that both nodes know.
        ValueError for settings that cannot run over several nodes."""
        return RemoteWorkerService(
            self._run, partial(self._end, worker), listener, secret, tls, Hello(run, "", worker, 0)
        )

    # --- in the processes that were started ------------------------------------------------------------------------

    def worker(self, worker: int, deadline_s: float) -> WorkerEnd:
        """Become worker `worker`; `deadline_s` (seconds) bounds each of its waits."""
        return self._end(worker, deadline_s)

    def _end(self, worker: int, deadline_s: float) -> SharedEnd:
        return SharedEnd(self._run, worker, deadline_s, self._cursor, self._signals, self._meetings, self._rows)

    def players(self, deadline_s: float) -> SimulationEnd:
        """Become the process that simulates all workers of a virtual run; `deadline_s` as in `worker`."""
        assert self._clock is not None, "needs host virtual and a clock"
        return SimulatedEnd(self._run, self._clock, deadline_s, self._cursor, self._signals, self._meetings, self._rows)

    def server(self, server: int, deadline_s: float) -> "ServerEnd":
        """Become server process `server`."""
        return ServerEnd(self._run, server, deadline_s, self._cursor, self._meetings)

    # --- in the monitor --------------------------------------------------------------------------------------------

    def arrivals(self) -> list[int] | None:
        """How many rendezvous each worker has come to; None once training has begun."""
        return None if self._signals.begun else self._run.control.column(ARRIVALS)

    def notes(self) -> dict[int, str]:
        """By worker, what the workers wait for whose wait has seen no event for a while."""
        return self._run.control.notes()

    def living(self) -> list[int]:
        """The workers whose process has not died."""
        return self._run.control.living()

    @property
    def hands_on_data(self) -> bool:
        """Whether workers take their batches one by one, so that those of a dead one are left to the others."""
        return self._cursor.progress() > 0

    def checkpoint(self) -> Path | None:
        """The newest checkpoint that worker 0 has noted, if the file exists."""
        return self._signals.checkpoint()

    def mark_dead(self, worker: int) -> None:
        """Note that a worker has died: nobody waits for it, and its share of the data is open to all."""
        self._cursor.mark_dead(worker)
        self._run.mark_dead(worker)

    def rejoin(self, worker: int) -> None:
        """Note that a dead worker will be started again, so that the others wait for it. Instead of `mark_dead`."""
        self._cursor.mark_dead(worker)
        self._meetings.forget(worker)
        self._run.rejoin(worker)
        self._cursor.rejoin(worker)

    def take_in(self, worker: int) -> bool:
        """As `rejoin`, for a worker that nobody waits for. False, with no effect, if it comes too late: a process that
        waits for the last update may have gone on."""
        self.rejoin(worker)
        if self._signals.stop or self._run.control.counter(0, FINISHED):  # asked last, so that who finishes waits
            self.mark_dead(worker)
            return False
        return True

    def close(self) -> None:
        """Close this process's descriptors when the run has ended, and complete its trace."""
        self._run.close()
        self._rows.close()
        self._meetings.close()


class ServerEnd:
    """A server process's end of the run: applies pushes. It may read the data cursor and the exchange, and takes no
    part."""

    def __init__(
        self, run: SharedRun, server: int, deadline_s: float, cursor: DataCursor, meetings: MessageExchange
    ) -> None:
        self._run, self._server, self._deadline_s = run, server, deadline_s
        self.cursor, self.meetings = cursor, meetings

    def await_workers(self, rendezvous: int, workers: Collection[int] | None = None) -> None:
        """Wait until every living worker, or each of `workers`, has come to so many rendezvous. TimeoutError when
        nothing happens for the deadline.

        Called before the model's `setup` in the server, which may need files that worker 0 downloads before that
        rendezvous.
        """
        control = self._run.control

        def have_come() -> bool:
            living = [worker for worker in control.living() if workers is None or worker in workers]
            late = [worker for worker in living if control.counter(worker, ARRIVALS) < rendezvous]
            return not late or bool(control.head[STARTED]) or not control.training()

        control.event.wait(
            have_come, self._deadline_s, lambda: f"a server waits for rendezvous {rendezvous} of the workers"
        )

    def serve(self, optimizers: Sequence[Optimizer], model: Module | None = None) -> None:
        """Apply what workers push, with the same optimizers and model as theirs; returns when they have finished."""
        serve(self._run, self._server, self._deadline_s, optimizers, model)
