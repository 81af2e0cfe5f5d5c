"""The end of a process that plays all workers of a virtual run."""

from collections.abc import Callable, Sequence

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from scalebook.training.ps.coordination.meetings import SharedMeetings
from scalebook.training.ps.coordination.run import SharedRun
from scalebook.training.ps.coordination.signals import SharedSignals
from scalebook.training.ps.memory.region import ARRIVALS, ROW, SAMPLES, SharedRows
from scalebook.training.ps.optimizer.tables import mark_tables
from scalebook.training.ps.sim.clock import SimulatedClock
from scalebook.training.ps.sim.joined import SimulatedJoined
from scalebook.training.ps.sim.one_model import OneModel
from scalebook.training.ps.sim.workers import SimulatedWorkers
from scalebook.training.ps.worker.cursor import Cursor
from scalebook.training.ps.worker.end import Need, Part, RandomStream, Work
from scalebook.training.ps.worker.shared_end import SharedEnd


class SimulatedEnd(SharedEnd):
    """A `PlayingEnd`. To the run's shared parts (signals, meetings) it is worker 0."""

    def __init__(
        self,
        run: SharedRun,
        clock: SimulatedClock,
        deadline_s: float,
        cursor: Cursor,
        signals: SharedSignals,
        meetings: SharedMeetings,
        rows: SharedRows,
    ) -> None:
        super().__init__(run, 0, deadline_s, cursor, signals, meetings, rows)
        self._clock, self._deadline_s = clock, deadline_s
        self._buffers: Callable[[], Sequence[Tensor]] = tuple
        self._work: Work | None = None
        self._notice: Callable[[], None] = lambda: None
        self._begins: Callable[[int, list[Tensor]], None] = lambda worker, buffers: None
        self._seed = 0
        self._streams: list[RandomStream] = []
        self._joined: SimulatedJoined | None = None

    def play(
        self,
        work: Work,
        buffers: Callable[[], Sequence[Tensor]],
        begins: Callable[[int, list[Tensor]], None],
        shows: Callable[[], None],
        seed: int,
        streams: Sequence[RandomStream] = (),
    ) -> None:
        self._streams = list(streams)
        self._work, self._buffers, self._begins, self._notice, self._seed = work, buffers, begins, shows, seed

    def rendezvous(self, name: str) -> None:
        """All workers have come to it at once; the monitor counts."""
        control = self._run.control
        for worker in range(control.workers):
            control.set_counter(worker, ARRIVALS, control.counter(worker, ARRIVALS) + 1)

    def join(
        self,
        optimizers: Sequence[Optimizer],
        announce: Callable[[Need], None] = lambda need: None,
        model: Module | None = None,
    ) -> SimulatedJoined:
        assert self._work is not None, "play first"
        if len(optimizers) > 1:
            raise ValueError(
                f"model: it has {len(optimizers)} optimizers, and virtual workers push once a batch. Use one, or host: "
                "inline."
            )
        if model is not None:
            mark_tables(model)
        one_model = OneModel(optimizers, self._buffers, self._seed, self._streams)

        def begins(worker: int) -> None:
            if self.workers > 1:  # alone, its hyper-parameters are those of when it pushes, as in any Trainer
                self._begins(worker, one_model.buffers_of(worker))
                one_model.begins(worker)

        workers = SimulatedWorkers(
            self._run, self._clock, one_model.make, self._work, self._deadline_s, begins=begins, announce=announce
        )
        self._joined = SimulatedJoined(workers, one_model, optimizers, self._notice, self._run)
        if model is not None:
            self._joined.read_rows(model)
        return self._joined

    @property
    def turn_of(self) -> int:
        return 0 if self._joined is None else self._joined.last

    def turn(self) -> int | None:
        assert self._joined is not None, "join first"
        return self._joined.turn()

    def go_on_from(self, seconds: float) -> None:
        self._clock.go_on_from(seconds)

    def add_time(self, part: Part, seconds: float) -> None:
        """Nothing: a virtual worker's time is what the clock says."""

    def add_samples(self, samples: int) -> None:
        """To the worker whose turn it is, or was last."""
        self._run.control.counters[self.turn_of * ROW + SAMPLES] += samples

    def note_memory(self, size: int) -> None:
        """Nothing: it is of all workers together."""
