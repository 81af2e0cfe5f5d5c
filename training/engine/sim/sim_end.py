"""The end of a process that simulates all workers of a run."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from scalebook.training.engine.coordination.run import SharedRun
from scalebook.training.engine.coordination.worker_messages import SharedExchange, SharedSignals
from scalebook.training.engine.memory.region import ARRIVALS, ROW, SAMPLES, SharedRows
from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.sim.model_multiplexer import BetweenWorkers, ModelMultiplexer
from scalebook.training.engine.sim.sim_clock import SimulatedClock
from scalebook.training.engine.sim.sim_workers import SimulatedWorkers
from scalebook.training.engine.store.rebuilt_optimizer import packed, parameters_of
from scalebook.training.engine.store.table_optimizer import is_table, mark_tables
from scalebook.training.engine.worker.client import Client
from scalebook.training.engine.worker.cursor import Cursor
from scalebook.training.engine.worker.optimizer_view import StateSwap
from scalebook.training.engine.worker.shared_end import SharedEnd
from scalebook.training.engine.worker.sparse_rows import RowReaders, sources_of
from scalebook.training.engine.worker.worker_end import (
    LocalState,
    MemoryNeed,
    Part,
    PushResult,
    RandomStream,
    Residuals,
    Snapshot,
    Work,
)


class SimulatedJoined:
    """A `JoinedEnd` of all workers; the multiplexer shows one of them at a time."""

    def __init__(
        self,
        workers: SimulatedWorkers,
        multiplexer: ModelMultiplexer,
        optimizers: Sequence[Optimizer],
        notice: Callable[[], None],
        run: SharedRun,
    ) -> None:
        self.workers, self.multiplexer, self._notice, self._run = workers, multiplexer, notice, run
        self.clients = [SimulatedClient(self, number, optimizer) for number, optimizer in enumerate(optimizers)]
        self.due: int | None = None
        """The worker whose gradient is to be computed now."""
        self.last = 0
        """The worker whose turn was last."""
        self._pending: bool | None = None  # handed over and not pushed: whether it is valid
        self._between = BetweenWorkers(workers, multiplexer)
        self._has_started = self._has_begun = self._has_ended = False
        self._readers: RowReaders | None = None
        self._show_again(0)

    @property
    def versions(self) -> list[int]:
        return [client.version for client in self.clients]

    def name_parameters(self, named: Iterable[tuple[str, Tensor]]) -> None:
        names = {id(parameter): name for name, parameter in named}
        called = [names.get(id(p), f"parameter {place}") for place, p in enumerate(self.multiplexer.parameters)]
        for joined in self.workers.joined.values():
            joined.name_parameters(zip(called, [p for c in joined.clients for p in c.replica.parameters], strict=True))

    def restore(
        self,
        versions: Sequence[int],
        states: Sequence[Mapping[str, Any]],
        residuals: Residuals = (),
        steps: Sequence[int] = (),
    ) -> None:
        self.workers.joined[0].restore(versions, states, residuals, steps)
        self.workers.joined[0].show_state()  # what its optimizer has from the constructor is not to count any more

    def residuals(self) -> Residuals:
        return self.workers.joined[0].residuals()

    def start(self) -> None:
        """Make what has been written into the model worker 0's, and so the first version."""
        for worker in range(self._run.control.workers if self._run.settings.local.steps else 1):
            for client, theirs in zip(self.clients, self._clients(worker), strict=True):
                client.load_state_into(theirs.optimizer)
        self._has_started = True
        self.multiplexer.hand_groups()
        self.multiplexer.carry(0)
        self.workers.start()
        self.multiplexer.start()
        self._between.show_newest()
        self.show_state()

    def begin(self) -> None:
        """No-op: they begin when the first gradient is requested."""

    def rest(self) -> None:
        """No-op: each worker rests by itself when it finds no data."""

    def check_foreign_writes(self, moment: str, thorough: bool = True) -> None:
        """Check writes into the model: they belong to the worker whose turn it is, or happen between two turns."""
        if self.due is None:
            self._between.check_foreign_writes(moment)
            return
        self.multiplexer.carry(self.due)
        self.workers.joined[self.due].check_foreign_writes(moment, thorough)
        self._show_again(self.due)

    def watch_closely(self) -> None:
        """Let all workers watch."""
        for joined in self.workers.joined.values():
            joined.watch_closely()

    def pull(self, moment: str = "between two pulls") -> None:
        """No-op: a worker pulls when it begins to compute."""

    def next_gradient(self) -> int | None:
        """See `SimulationEnd`."""
        self.push_pending()
        self._between.check_foreign_writes("between two steps, since its last step, validation or checkpoint")
        if not self._has_begun:
            self._has_begun = True
            self.workers.begin_all()
        self.due = None if self._has_ended else self.workers.next()
        if self.due is None:
            return None
        self.last = self.due
        self._between.reset()
        for number, client in enumerate(self._clients(self.due)):
            self.multiplexer.steps_change(self.due, number, client.notes.keys)
        self._notice()
        self.multiplexer.switch_to(self.due)
        return self.due

    def hand_over(self, valid: bool) -> None:
        """Hand over the gradient of the worker whose turn it is, with the present hyper-parameters."""
        assert self.due is not None, "a worker pushed, but none of its gradients was due"
        self.multiplexer.hand_over(self.due)
        self._pending = valid

    def push_pending(self) -> None:
        """Send what was handed over, and advance the time as far as possible before the next gradient is due."""
        if self._pending is None:
            return
        assert self.due is not None
        worker, valid = self.due, self._pending
        self.multiplexer.shown_again(worker)
        self.due = self._pending = None
        self.workers.push(valid)
        self.workers.advance()
        self.multiplexer.advanced()
        self._between.show_newest(worker)

    def push_rest(self) -> bool:
        """True: each worker pushes the rest of its sum when it finishes."""
        return True

    def finish(self) -> None:
        """Abandon gradients under way; pushes arrive and are applied."""
        if self._has_ended:
            return
        self.push_pending()
        self._has_ended, self.due = True, None
        self.workers.end_all()
        self._between.show_newest(self.last)

    def wait_for_others(self) -> None:
        """No-op: they have finished too."""

    def snapshot(self, renew: bool = True) -> Snapshot:
        """The state at this virtual moment; gradients under way stay. Buffers are worker 0's."""
        self.push_pending()
        if renew:
            self._notice()
            self.multiplexer.be(0)
            self._between.show_copy()
        states = [
            {"state": client.state.value(), "param_groups": mine.groups()}
            for client, mine in zip(self._clients(0), self.clients, strict=True)
        ]
        local = [
            LocalState(outer=state["outer"], steps=mine.steps)  # schedules have come as far as who has made most
            for client, mine in zip(self._clients(0), self.clients, strict=True)
            if (state := client.local_state()) is not None
        ]
        return Snapshot([self._version(number) for number in range(len(self.clients))], states, local)

    def show_state(self) -> None:
        for client in self.clients:
            client.show_state()

    def detach(self) -> None:
        for client in self.clients:
            client.hide_state()
        if self._readers is not None:
            self._readers.restore_modules()
        with torch.no_grad():
            for parameter in self.multiplexer.parameters:
                if not is_table(parameter):  # lent privately, as it is in the end
                    parameter.data = parameter.data.clone()
        self.workers.detach()

    @property
    def keeps_state(self) -> bool:
        """Whether the model's optimizer has state that workers must begin with."""
        return self._run.settings.local.steps and not self._has_started

    def read_rows(self, model: Module) -> None:
        """Let the model's sparse embeddings fetch the rows that they need, until `detach`."""
        self._readers = RowReaders(model, sources_of(self.multiplexer.parameters, self._rows))

    # --- what the model shows --------------------------------------------------------------------------------------

    def client(self, number: int) -> Client:
        """Worker 0's client of one optimizer, for questions whose answer is the same for all workers."""
        return self._clients(0)[number]

    def version_of(self, number: int) -> int:
        """The version that the due gradient is computed from, else the newest."""
        return self._version(number) if self.due is None else self._clients(self.due)[number].version

    def _rows(self, place: int, rows: Tensor) -> Tensor:
        """Rows of a table, as of the version of the worker whose turn it is; between two turns the newest."""
        if self.due is None:
            return self._clients(0)[0].reads.rows(place, rows, newest=True)
        return self._clients(self.due)[0].reads.rows(place, rows)

    def _clients(self, worker: int) -> list[Client]:
        return self.workers.joined[worker].clients

    def _version(self, number: int) -> int:
        return min(shard.version for shard in self.workers.partitions[number].shards)

    def _show_again(self, worker: int) -> None:
        own = [p for client in self._clients(worker) for p in client.replica.parameters]
        self.multiplexer.put({place: parameter.data for place, parameter in enumerate(own)})


class SimulatedClient:
    """An `OptimizerEnd`: the model's optimizer; its pushes are those of the worker whose turn it is."""

    def __init__(self, joined: SimulatedJoined, number: int, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._joined, self._number = joined, number
        self._state = StateSwap(optimizer, self._read_state, lambda: tuple(joined.versions))

    @property
    def version(self) -> int:
        return self._joined.version_of(self._number)

    @property
    def steps(self) -> int:
        """Local steps of the worker whose gradient is due; between two turns the most of any worker. The version,
        without local steps."""
        if not self._joined.workers.run.settings.local.steps:
            return self.version
        if self._joined.due is not None:
            return self._joined.workers.joined[self._joined.due].clients[self._number].steps
        return max(joined.clients[self._number].steps for joined in self._joined.workers.joined.values())

    def push(self, valid: bool = True) -> PushResult:
        """Hand over the gradient; only `completed` knows what becomes of it."""
        self._joined.hand_over(valid)
        return PushResult(self.version, applied=valid, staleness=0, is_last=False)

    def completed(self, pushed: PushResult) -> PushResult:
        """A gradient that still travels, or waits for a round, counts as applied until the rule drops it."""
        worker = self._joined.last
        self._joined.push_pending()
        outcome = self._joined.workers.pushed.get(worker, pushed)
        is_last = self._joined.client(self._number).host.partition.admission.is_over()
        return PushResult(self.version, outcome.applied, outcome.staleness, is_last, outcome.was_sent)

    def groups(self) -> list[dict[str, Any]]:
        """The param groups with what steps have changed so far; with local steps, those of worker 0."""
        joined = self._joined
        if joined.workers.run.settings.local.steps:
            changed = joined.multiplexer.changed(0, self._number)
        else:
            changed = joined.client(self._number).notes.newest()
        groups = packed(self.optimizer.param_groups)
        return [{**group, **changed[number]} for number, group in enumerate(groups)]

    def show_state(self) -> None:
        """Show the run's state in the model's optimizer, read-only. Before the start it may hold the state that workers
        with local steps begin with."""
        if not self._joined.keeps_state:
            self._state.show()

    def hide_state(self) -> None:
        """Undo `show_state`."""
        self._state.hide()

    def load_state_into(self, to: Optimizer) -> None:
        """Give worker 0 the state that was put into the model's optimizer before training."""
        if not self._state.is_untouched:
            state = copy.deepcopy(self.optimizer.state_dict()["state"])
            to.load_state_dict({"state": state, "param_groups": packed(to.param_groups)})

    def _read_state(self) -> dict[Tensor, Any]:
        parameters = parameters_of(self.optimizer)
        state = self._joined.client(self._number).state.value()
        return {parameters[key] if isinstance(key, int) else key: value for key, value in state.items()}


class SimulatedEnd(SharedEnd):
    """A `SimulationEnd`. In the run's shared parts (signals, exchange) it is worker 0."""

    def __init__(
        self,
        run: SharedRun,
        clock: SimulatedClock,
        deadline_s: float,
        cursor: Cursor,
        signals: SharedSignals,
        meetings: SharedExchange,
        rows: SharedRows,
    ) -> None:
        super().__init__(run, 0, deadline_s, cursor, signals, meetings, rows)
        self._clock, self._deadline_s = clock, deadline_s
        self._buffers: Callable[[], Sequence[Tensor]] = tuple
        self._work: Work | None = None
        self._notice: Callable[[], None] = lambda: None
        self._begins: Callable[[int, list[Tensor]], None] = lambda worker, buffers: None
        self._streams: list[RandomStream] = []
        self._joined: SimulatedJoined | None = None

    def play(
        self,
        work: Work,
        buffers: Callable[[], Sequence[Tensor]],
        begins: Callable[[int, list[Tensor]], None],
        shows: Callable[[], None],
        streams: Sequence[RandomStream] = (),
    ) -> None:
        self._streams = list(streams)
        self._work, self._buffers, self._begins, self._notice = work, buffers, begins, shows

    def rendezvous(self, name: str) -> None:
        """All workers come to it at once; the monitor counts."""
        control = self._run.control
        for worker in range(control.workers):
            control.set_counter(worker, ARRIVALS, control.counter(worker, ARRIVALS) + 1)

    def join(
        self,
        optimizers: Sequence[Optimizer],
        announce: Callable[[MemoryNeed], None] = lambda need: None,
        model: Module | None = None,
    ) -> SimulatedJoined:
        assert self._work is not None, "play first"
        if len(optimizers) > 1:
            raise ArgumentError(
                "model-not-supported",
                "model",
                f"it has {len(optimizers)} optimizers, but virtual workers push only once per batch",
                "Use one optimizer, or set host: inline.",
            )
        if model is not None:
            mark_tables(model)
        multiplexer = ModelMultiplexer(optimizers, self._buffers, self._streams)

        def begins(worker: int) -> None:
            if self.workers > 1:  # alone, its hyper-parameters are those of when it pushes, as in any Trainer
                self._begins(worker, multiplexer.buffers_of(worker))
                multiplexer.begins(worker)

        workers = SimulatedWorkers(
            self._run, self._clock, multiplexer.make, self._work, self._deadline_s, begins=begins, announce=announce
        )
        self._joined = SimulatedJoined(workers, multiplexer, optimizers, self._notice, self._run)
        if model is not None:
            self._joined.read_rows(model)
        return self._joined

    @property
    def current_worker(self) -> int:
        return 0 if self._joined is None else self._joined.last

    def next_gradient(self) -> int | None:
        assert self._joined is not None, "join first"
        return self._joined.next_gradient()

    def resume(self, seconds: float) -> None:
        self._clock.resume(seconds)

    def add_time(self, part: Part, seconds: float) -> None:
        """No-op: the clock says what a simulated worker's time is."""

    def add_samples(self, samples: int) -> None:
        """Counts for the worker whose turn it is, or was last."""
        self._run.control.counters[self.current_worker * ROW + SAMPLES] += samples

    def note_memory(self, size: int) -> None:
        """No-op: the process's memory belongs to all workers together."""
