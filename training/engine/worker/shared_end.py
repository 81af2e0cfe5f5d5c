"""The worker's end over shared memory."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from torch.nn import Module
from torch.optim import Optimizer

from scalebook.training.engine.coordination.run import SharedRun
from scalebook.training.engine.coordination.worker_messages import SharedExchange, SharedSignals
from scalebook.training.engine.memory.region import COMPUTE, DATA, MEMORY, ROW, SAMPLES
from scalebook.training.engine.memory.shared_memory import SharedRows
from scalebook.training.engine.worker.cursor import Cursor
from scalebook.training.engine.worker.join import join, join_waits
from scalebook.training.engine.worker.joined_worker import Joined
from scalebook.training.engine.worker.worker_end import Figures, JoinedEnd, MemoryNeed, Part

PARTS: Final[dict[Part, int]] = {"compute": COMPUTE, "data": DATA}


class SharedEnd:
    """A `WorkerEnd` over shared memory; made in the worker's process, from what was made before the fork."""

    def __init__(
        self,
        run: SharedRun,
        worker: int,
        deadline_s: float,
        cursor: Cursor,
        signals: SharedSignals,
        meetings: SharedExchange,
        rows: SharedRows,
    ) -> None:
        self._run, self.settings = run, run.settings
        self.worker, self.workers = worker, run.control.workers
        self.cursor, self.signals, self.rows = cursor, signals, rows
        self.meetings = meetings.of(worker, deadline_s)
        self._membership = run.member(worker, deadline_s)
        run.control.event.say = partial(run.control.set_wait, worker)

    @property
    def figures(self) -> Figures:
        return self._run

    def rendezvous(self, name: str) -> None:
        self._run.control.clock.play(self._membership.rendezvous(name))

    def join(
        self,
        optimizers: Sequence[Optimizer],
        announce: Callable[[MemoryNeed], None] = lambda need: None,
        model: Module | None = None,
    ) -> JoinedEnd:
        return join(self._run, self._membership, optimizers, announce, model)

    def join_for(self, optimizers: Sequence[Optimizer], announce: Callable[[MemoryNeed], None]) -> Joined:
        """`join` for a worker in another process, which computes the gradients that this one pushes."""
        return self._run.control.clock.play(
            join_waits(self._run, self._membership, optimizers, announce, stands_in=True)
        )

    def living(self) -> list[int]:
        return self._run.control.living()

    def sign_of_life(self) -> None:
        self._run.control.event.wake()

    def is_over(self) -> bool:
        most = self.settings.max_updates
        return self.signals.stop or (most is not None and self._run.counts().updates >= most)

    def now(self) -> float:
        return self._run.control.clock.now()

    def add_time(self, part: Part, seconds: float) -> None:
        self._run.control.seconds[self.worker * ROW + PARTS[part]] += seconds

    def add_samples(self, samples: int) -> None:
        self._run.control.counters[self.worker * ROW + SAMPLES] += samples

    def note_memory(self, size: int) -> None:
        self._run.control.seconds[self.worker * ROW + MEMORY] = size
