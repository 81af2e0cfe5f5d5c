"""One shard in one process: versions of its parameters, the state of its optimizer, and how the next version is made.

A published version never changes. An update writes parameters and state beside the newest ones, and then one store
makes them the newest; so a process that dies in the middle of an update leaves everything as it was. Workers pin the
version that they use. A buffer may be overwritten if nobody has pinned its version, or only the worker whose push is
being applied. A worker may pull during an update: it takes the newest version, to which nobody writes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from scalebook.training.engine.hyper import Groups
from scalebook.training.engine.memory.lock import HeldLock
from scalebook.training.engine.memory.region import (
    AGE,
    APPLIED,
    BINS,
    DRIFT,
    DRIFTS,
    DUPLICATES,
    FIRST_BIN,
    GAUGE,
    METER,
    ShardCounters,
)
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.store.block_steps import BlockSteps
from scalebook.training.engine.store.optimizer_state import SharedState, StepNotes, copied, refuse_changes
from scalebook.training.engine.store.rebuilt_optimizer import (
    counterparts,
    cut_error,
    is_torchs,
    no_hooks,
    parameters_of,
    rebuild,
    step,
)
from scalebook.training.engine.store.store_layout import ShardPlan
from scalebook.training.engine.store.table_shard import Tables, rows_compensated, with_values
from scalebook.training.engine.store.written_step import WrittenStep
from scalebook.training.engine.trace import Origin, ShardTrace


class PushMeter:
    """Measures pushes by worker, in shared memory. `views`: the shard's parameters by buffer. `drift`: whether it is
    measured. `now`: the run's clock, s. Call it under `Shard.applying`."""

    def __init__(
        self,
        counters: ShardCounters,
        views: Sequence[Sequence[Tensor]],
        tables: Tables | None,
        drift: bool,
        now: Callable[[], float],
    ) -> None:
        self._counters, self._views, self._tables, self._measures_drift, self._now = counters, views, tables, drift, now

    def duplicate(self, origin: Origin) -> None:
        """Count a gradient that came a second time."""
        self._counters.meters[origin.worker * METER + DUPLICATES] += 1

    def drifts(self, newest: int, origins: Sequence[Origin]) -> list[float]:
        """Before an update: ||w - w_base|| of each gradient, Euclidean, over the shard; empty if not measured.
        `newest`: the buffer of the newest version."""
        return [self._drift(newest, origin) for origin in origins] if self._measures_drift else []

    def applied(self, version: int, origins: Sequence[Origin], drifts: Sequence[float]) -> None:
        """Count gradients that have been applied to `version`."""
        meters, gauges, time_s = self._counters.meters, self._counters.gauges, self._now()
        for origin in origins:
            row = origin.worker * METER
            meters[row + APPLIED] += 1
            meters[row + FIRST_BIN + min(version - origin.base_version, BINS - 1)] += 1
            gauges[origin.worker * GAUGE + AGE] += time_s - origin.pulled
        for origin, drift in zip(origins, drifts, strict=False):
            gauges[origin.worker * GAUGE + DRIFT] += drift
            gauges[origin.worker * GAUGE + DRIFTS] += 1

    def _drift(self, newest: int, origin: Origin) -> float:
        if newest == origin.base_buffer:
            return 0.0
        pairs = zip(self._views[newest], self._views[origin.base_buffer], strict=True)
        drift = float(torch.stack([torch.dist(a.float(), b.float()) for a, b in pairs]).norm())
        return drift if self._tables is None else math.hypot(drift, self._tables.moved(origin.base_version))


_STATE_BIT = 1 << 16


class Newest(NamedTuple):
    """The newest version: its number, the buffer of its parameters, and which of the two states (0 or 1) is its own."""

    version: int
    buffer: int
    state: int

    @classmethod
    def of(cls, packed: int) -> "Newest":
        """Unpack `ShardCounters.newest`."""
        return cls(packed >> 17, packed & (_STATE_BIT - 1), 1 if packed & _STATE_BIT else 0)


class Shard:
    """The versions and the optimizer state of one shard.

    `memory`: the run's shared memory (uint8). `row_memory`: that for rows, if there are sparse tables. `optimizer`: the
    worker's, which is copied and stays as it is. `deadline_s`: of each wait for a lock. `now`: the run's clock, s.
    """

    def __init__(
        self,
        plan: ShardPlan,
        memory: Tensor,
        counters: ShardCounters,
        optimizer: Optimizer,
        settings: Settings,
        deadline_s: float,
        trace: ShardTrace | None = None,
        now: Callable[[], float] = monotonic,
        row_memory: Tensor | None = None,
        forgets: bool = True,
    ) -> None:
        """`forgets`: as in `OptimizerPartition`."""
        self.plan, self.counters = plan, counters
        self.applying = HeldLock(counters.apply_lock, deadline_s)
        """The apply lock; needed to call `apply` and to read the optimizer's state."""
        self._versions = HeldLock(
            counters.version_lock, deadline_s
        )  # for microseconds: nobody else takes a version, chooses, publishes
        self.flats = [plan.version_memory(memory, buffer) for buffer in range(plan.buffers)]
        self.views = [plan.version.views(flat) for flat in self.flats]
        self._workers = len(counters.held)
        self._damping, self._trace, self._now = settings.damping, trace, now
        stand_ins = counterparts(optimizer, self.views[0], plan.parameters)
        self.optimizer = rebuild(optimizer, stand_ins, plan.parameters)
        self._parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self._state = SharedState(self.optimizer, plan, memory)
        self.notes = StepNotes(self.optimizer, plan, self.flats) if plan.notes.fields else None
        """What the optimizer's steps change beside the state of parameters, if anything."""
        self._blocks = BlockSteps.of(self.optimizer, plan, self._state, self.views)
        self._is_torchs = is_torchs(self.optimizer)
        self._is_alone = settings.clock is not None or (self._workers == 1 and not settings.has_servers)
        self._written: WrittenStep | None = None
        """None: the optimizer is an outer one of ours (`applied`)."""
        if not settings.local.steps:
            self._written = WrittenStep(self.optimizer, plan.reaches, self._is_alone, settings.closures)
        self.served_s = 0.0
        """Seconds in which this process has applied gradients."""
        self._made_of = optimizer
        self.tables: Tables | None = None
        """The sparse tables, which have no versions."""
        if plan.tables:
            assert row_memory is not None
            self.tables = Tables(plan, memory, row_memory, counters, self.optimizer, self._parameters, forgets)
        self._meter = PushMeter(counters, self.views, self.tables, settings.drift, now)

    # --- versions ------------------------------------------------------------------------------------------------

    def newest(self) -> Newest:
        """The published version; needs no lock."""
        return Newest.of(self.counters.newest[0])

    @property
    def version(self) -> int:
        """Updates applied so far; needs no lock."""
        return int(self.counters.newest[0] >> 17)

    def pin(self, worker: int) -> Newest:
        """Pin the newest version for `worker`, without waiting for an update under way."""
        with self._versions:
            newest = self.newest()
            self.counters.held[worker] = newest.buffer
            if self.tables is not None:
                self.counters.bases[worker] = newest.version
        return newest

    def release(self, worker: int) -> None:
        """The worker will read no more rows as of the version that it has pinned."""
        self.counters.bases[worker] = -1

    def read(self, place: int, rows: Tensor, version: int) -> Tensor:
        """Rows (int64 [n], different, increasing) of the table at this place of the whole optimizer, as of a pinned
        version."""
        assert self.tables is not None
        return self.tables.read(self.tables.at[self.plan.parameters.index(place)], rows, version)

    def unpin(self, worker: int) -> None:
        """Unpin the worker's version."""
        with self._versions:
            self.counters.held[worker] = -1

    def applied(self, worker: int) -> int:
        """The last push of `worker` in the newest version; needs no lock."""
        buffer = self.counters.newest[0] & (_STATE_BIT - 1)
        return int(self.counters.applied[buffer * self._workers + worker])

    def _free(self, newest: int, pusher: int | None) -> int:
        """The number of a buffer that may be overwritten: one that only `pusher` has pinned, else one that nobody has.

        In this order, since `pusher` has just read its own, which is in its core's cache.
        """
        with self._versions:
            held = self.counters.held.tolist()
        if pusher is not None and 0 <= (own := held[pusher]) != newest and held.count(own) == 1:
            return int(own)
        used = {newest, *held}
        for buffer in range(len(self.flats)):
            if buffer not in used:
                return buffer
        raise AssertionError("every buffer is held")

    def publish(self, version: int, buffer: int, state: int) -> None:
        """Make this buffer and state the newest version, by one store."""
        self.counters.newest[0] = version << 17 | state << 16 | buffer

    # --- updates -------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def apply(
        self,
        origins: Sequence[Origin],
        gradients: Sequence[Tensor | None],
        groups: Groups,
        pusher: int | None = None,
    ) -> bool:
        """Make the next version by a step with `gradients` and these hyper-parameters, and publish it; under
        `applying`.

        `origins`: whose gradients it averages. `pusher`: a worker that no longer needs its pinned version, whose buffer
        may be overwritten; it then has the new version pinned. False, with no effect, for a push that was applied
        before.
        """
        newest = self.newest()
        if self.tables is not None:
            self.tables.recover(newest.version)
        row = newest.buffer * self._workers
        applied = self.counters.applied
        if len(origins) == 1 and origins[0].seq <= applied[row + origins[0].worker]:
            self._meter.duplicate(origins[0])
            return False
        rate = self._damping.rate([newest.version - origin.base_version for origin in origins])
        drifts = self._meter.drifts(newest.buffer, origins)
        target = self._free(newest.buffer, pusher)
        mine = _damped([groups[number] for number in self.plan.groups], rate)
        is_usual = self._written is None or not self._written.is_needed
        in_blocks = is_usual and self._blocks is not None and self._blocks.can(newest.state, gradients, mine)
        state = self._state.begin_step(newest.state, has_copy=not in_blocks)
        if self._damping.compensates:
            gradients = self._compensated(gradients, newest.buffer, origins[0], state)
        if in_blocks and self._blocks is not None:
            self._take(newest.buffer, mine, origins[-1].base_version)
            self._blocks.step(newest.buffer, target, newest.state, gradients, mine)
        else:
            self._step(newest, target, state, gradients, mine, origins[-1].base_version, is_usual)
        target_row = target * self._workers
        applied[target_row : target_row + self._workers] = applied[row : row + self._workers]
        for origin in origins:
            applied[target_row + origin.worker] = max(origin.seq, applied[target_row + origin.worker])
        if self._trace is not None:
            self._trace.record(newest.version + 1, origins, rate)
        if self.tables is not None:
            self.tables.write(newest.version + 1)
        with self._versions:  # who holds the new version finds it measured
            self.publish(newest.version + 1, target, state)
            self._meter.applied(newest.version, origins, drifts)
        if self.tables is not None:
            self.tables.close()
        return True

    def _step(
        self,
        newest: Newest,
        target: int,
        state: int,
        gradients: Sequence[Tensor | None],
        mine: Groups,
        base: int,
        is_usual: bool,
    ) -> None:
        source = newest.buffer
        if is_usual and self._state.is_empty and type(self.optimizer) is SGD and all(map(_is_plain, mine)):
            self._plain_sgd(source, target, gradients, mine)
            return
        given = self._take(source, mine, base, is_usual)
        self.flats[target].copy_(self.flats[source])
        tables = self.tables.at if self.tables is not None else {}
        for place, (parameter, view) in enumerate(zip(self._parameters, self.views[target], strict=True)):
            if self.tables is not None and place in tables:
                self.tables.lend(place, gradients[place])
                continue
            parameter.data = view
            parameter.grad = gradients[place]
        self._step_once(is_usual)
        if self.tables is not None:
            self.tables.collect()
        if not self._is_alone:
            self._state.refuse_new()
        self._state.write(state)
        if self.notes is not None:
            self.notes.write(target, newest.version + 1)
        elif given:
            refuse_changes(self.optimizer, given)
        for parameter in self._parameters:
            parameter.grad = None

    def _step_once(self, is_usual: bool) -> None:
        if self._written is None:
            with no_hooks():  # those of all optimizers are for the user's
                step(self.optimizer)
        elif is_usual:
            step(self.optimizer)
        elif len(self._parameters) < len(parameters_of(self._made_of)):
            raise cut_error(self.optimizer)
        else:
            self._written()

    def _take(self, source: int, groups: Groups, base: int, is_usual: bool = True) -> list[dict[str, Any]]:
        """Load the hyper-parameters for the next step, from a worker that has seen version `base`. Returns the param
        groups, if nothing is noted of what a step may change in them."""
        if self.notes is not None:
            self.notes.load_version(source)
            self.notes.load_groups(groups, base)
            return []
        for own, given in zip(self.optimizer.param_groups, groups, strict=True):
            own.update({key: value for key, value in given.items() if key != "params"})
        return [] if self._is_torchs and is_usual else [dict(group) for group in self.optimizer.param_groups]

    def _plain_sgd(self, source: int, target: int, gradients: Sequence[Tensor | None], groups: Groups) -> None:
        """What torch.optim.SGD does without momentum, from version to version: no copy, one pass over the memory."""
        old, new, place = self.views[source], self.views[target], 0
        for own, given in zip(self.optimizer.param_groups, groups, strict=True):
            lr, decay = given["lr"], given["weight_decay"]
            for _ in own["params"]:
                gradient = gradients[place]
                if self.tables is not None and place in self.tables.at:
                    self.tables.subtract(place, gradient, -lr if own.get("maximize") else lr)
                elif gradient is None:
                    new[place].copy_(old[place])
                else:
                    if decay:
                        gradient = gradient.add(old[place], alpha=decay)
                    torch.add(old[place], gradient, alpha=-lr, out=new[place])
                place += 1

    def _compensated(
        self, gradients: Sequence[Tensor | None], newest: int, origin: Origin, state: int
    ) -> list[Tensor | None]:
        squares = self._state.squares[state]
        corrected: list[Tensor | None] = []
        for place, gradient in enumerate(gradients):
            if gradient is None:
                corrected.append(None)
                continue
            if self.tables is not None and place in self.tables.at:
                values = gradient._values()
                out = torch.empty_like(values)
                rows, base = rows_compensated(self.tables, place, gradient, origin.base_version)
                self._damping.compensate(values, rows, base, None, out)
                corrected.append(with_values(gradient, out))
                continue
            out, base = torch.empty_like(gradient), self.views[origin.base_buffer][place]
            square = squares[place] if squares else None
            self._damping.compensate(gradient, self.views[newest][place], base, square, out)
            corrected.append(out)
        return corrected

    @contextmanager
    def serving(self, gradients: int = 1) -> Iterator[None]:
        """Measures the time in which so many gradients are applied; under `applying`."""
        began = self._now()
        yield
        if seconds := self._now() - began:
            self.served_s += seconds
            self.counters.served.add(seconds / gradients, gradients)

    # --- whole states --------------------------------------------------------------------------------------------

    @torch.no_grad()
    def initialise(self, parameters: Sequence[Tensor], with_tables: bool = True) -> None:
        """Publish version 0: these parameters, and the state that the optimizer has from its constructor. Tables that
        are left out stay zeros, which take no memory."""
        tables = self.tables.at if self.tables is not None else {}
        for place, (view, parameter) in enumerate(zip(self.views[0], parameters, strict=True)):
            if place not in tables:
                view.copy_(parameter)
        self._state.write(0)
        if self.notes is not None:
            self.notes.set_initial(0, 0)
        if self.tables is not None and with_tables:
            given = parameters_of(self._made_of)
            state = {place: self._made_of.state.get(given[self.plan.parameters[place]], {}) for place in tables}
            self.tables.initialise({place: parameters[place] for place in tables}, state)
        self.publish(0, 0, 0)

    def optimizer_state(self) -> dict[Any, Any]:
        """The optimizer's state of the newest version by place of the parameter in the whole optimizer; what belongs to
        no parameter keeps its own key. Copied, except row-wise state of tables. Under `applying`."""
        newest = self.newest()
        if self.tables is not None:
            self.tables.recover(newest.version)
        self._state.read(newest.state)
        if self.notes is not None:
            self.notes.load_version(newest.buffer)
        state: dict[Any, Any] = copied(self.optimizer.state_dict()["state"])
        if self.tables is not None:
            for place in self.tables.at:
                state.get(place, {}).update(self.tables.state(place) if state.get(place) else {})
        return {self.plan.parameters[key] if isinstance(key, int) else key: value for key, value in state.items()}

    def content(self, newest: Newest) -> tuple[Tensor, Tensor]:
        """The bytes (uint8) of a version and of its state, without a copy."""
        return self.flats[newest.buffer], self._state.memory(newest.state)

    def restore(self, version: int, state: Mapping[Any, Any], groups: Groups | None = None) -> None:
        """Resume from a version with this state, by place in the whole optimizer, and with these groups of the whole
        optimizer for what steps have changed in them; before the run's first update."""
        places = {whole: place for place, whole in enumerate(self.plan.parameters)}
        newest = self.newest()
        mine = {
            places.get(whole, whole): value
            for whole, value in state.items()
            if whole in places or not isinstance(whole, int)
        }
        if self.tables is not None:
            self.tables.load_state(mine)
            self.tables.start_at(version)
            for place in self.tables.at:
                if place in mine:
                    mine[place] = self.tables.without_rows(place, mine[place])
        self._state.replace(mine)
        if self.notes is not None:
            of_mine = None if groups is None else [groups[number] for number in self.plan.groups]
            self.notes.set_initial(newest.buffer, version, of_mine, self._made_of)
        self.publish(version, newest.buffer, 0)


def _is_plain(group: Mapping[str, Any]) -> bool:
    return (
        group["momentum"] == 0
        and not group["maximize"]
        and not group["fused"]
        and not group["differentiable"]
        and isinstance(group["lr"], float | int)
    )


def _damped(groups: Groups, factor: float) -> Groups:
    """The groups with their learning rates multiplied by the damping's factor."""
    return groups if factor == 1.0 else [{**group, "lr": group["lr"] * factor} for group in groups]
