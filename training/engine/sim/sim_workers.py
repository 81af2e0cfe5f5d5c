"""All workers of a run in one process: their clients, on a simulated clock. No rule is written here."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.engine.coordination.admission import Admission
from scalebook.training.engine.coordination.run import SharedRun
from scalebook.training.engine.hyper import Groups, decode
from scalebook.training.engine.memory.region import COMPUTE, ROW, Control
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.rules.update_rules import Rule, Sync, View
from scalebook.training.engine.sim.scheduler import Computes, Life, Scheduler, Watch
from scalebook.training.engine.sim.sim_clock import SimulatedClock
from scalebook.training.engine.store.coded_traffic import Carrier
from scalebook.training.engine.store.gradient_transfer import GradientTransfer
from scalebook.training.engine.store.hosts import InlineHost
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition
from scalebook.training.engine.store.shard import Newest
from scalebook.training.engine.store.slots import Average, Slots
from scalebook.training.engine.store.store_layout import Capacity, PartitionPlan
from scalebook.training.engine.trace import Origin
from scalebook.training.engine.worker.join import ProcessShared, join_waits
from scalebook.training.engine.worker.joined_worker import Joined
from scalebook.training.engine.worker.shared_state import Work
from scalebook.training.engine.worker.worker_end import MemoryNeed, PushResult
from scalebook.training.engine.worker_clock import T, Wait, Waits


def may_release(settings: Settings) -> bool:
    """Whether idle workers may release their version, so that workers hold few distinct ones."""
    kind = type(settings.rule)
    as_sync = kind.may_begin is Rule.may_begin and kind.accepts is Rule.accepts and kind.needed is Sync.needed
    return settings.rule.synchronous and as_sync and settings.local.n_fetch == 1


class SimulatedCapacity(Capacity):
    """Memory for fewer versions: a worker whose gradient is in a synchronous update pulls that update before anything
    else happens. Older versions are held only by workers that it did not wait for, and the first one by those that wait
    for the end of the warm-up."""

    @override
    def buffers(self, settings: Settings, workers: int) -> int:
        every = super().buffers(settings, workers)
        if not may_release(settings):
            return every
        return min(every, 2 + workers - settings.most(workers) + (1 if settings.warmup_updates else 0))

    @override
    def slots(self, settings: Settings, workers: int, has_tables: bool) -> int:
        """One, for a round's sum; sparse gradients need one each, since they are not summed as they come."""
        slots = super().slots(settings, workers, has_tables)
        return slots if has_tables else min(1, slots)


class SimulatedAdmission(Admission):
    """Admission of many workers in one process, which ask again after each event: the view is cached until something
    happens."""

    def __init__(self, control: Control, number: int, deadline_s: float) -> None:
        super().__init__(control, number, deadline_s)
        own = type(self.rule).may_begin is not Rule.may_begin
        self._tick_tells = self.may_wait and (own or not self.rule.synchronous)
        self._seen: tuple[int, View] | None = None  # after how many wakes, and what was to be seen

    @override
    def tick(self, worker: int) -> None:
        """No event if nobody can begin by it: a worker that has contributed waits for the update."""
        self.counters.clocks[worker] += 1
        self._seen = None
        if self._tick_tells:
            self.control.event.wake()

    @override
    def _turns(self) -> View:
        calls = self.control.event.calls
        if self._seen is None or self._seen[0] != calls:
            self._seen = calls, self.view()
        return self._seen[1]

    @override
    def _let_in(self, worker: int) -> bool:
        is_in = super()._let_in(worker)
        if is_in:
            self._seen = None
        return is_in


class SimulatedPartition(OptimizerPartition):
    """An optimizer whose dense rounds are one sum, and whose real times are not measured."""

    forgets: ClassVar[bool] = False
    times_workers: ClassVar[bool] = False

    @override
    def _admission(self) -> Admission:
        return SimulatedAdmission(self.control, self.number, self.deadline_s)

    @override
    def _slots(self, memory: Tensor, row_memory: Tensor | None) -> Slots:
        if not self.plan.slots or self.plan.tables:
            return super()._slots(memory, row_memory)
        codes = self.control.settings.push_codec.codes
        takes_over = self.device.is_host and not codes  # else they lie where the next ones are put
        return SummedSlots(self.plan, memory, self.control, self.number, takes_over)


class SummedSlots(Slots):
    """Slots that share one running sum of the round.

    Each gradient has only the counters of a slot. It is added when it is registered, while it is in the cache, in the
    order of `Slots.average`, so the sum is the same to the last bit. No process can die in between, so the gradients
    themselves are not kept.

    `takes_over`: nobody uses a gradient after its push, so the first one of a round becomes the sum; else it is copied
    into a slot's memory.
    """

    def __init__(self, plan: PartitionPlan, memory: Tensor, control: Control, number: int, takes_over: bool) -> None:
        super().__init__(plan, memory, control, number)
        self._takes_over = takes_over
        self._room = self._gradients[0]
        self._sum: list[Tensor | None] = [None] * len(self._room)
        self._written: tuple[list[Tensor | None], Groups] = ([], [])  # of the slot that was written last
        self._text = b""  # hyper-parameters of the gradient that was gathered last

    @override
    def write(
        self,
        slot: int,
        origins: list[Origin],
        gradients: list[Tensor | None],
        groups: Groups,
        valid: bool,
        is_carried: bool = False,
    ) -> None:
        """Keep a reference only; `gather` reads the gradients."""
        assert not is_carried
        self._note(slot, origins, valid)
        self._written = gradients, groups

    @override
    @torch.no_grad()
    def gather(self, slot: int, first: bool) -> None:
        if first:
            self._sum = [None] * len(self._room)
        (gradients, groups), self._written = self._written, ([], [])
        self._text = self._encode(groups)
        if not self._counters.valid[slot]:
            return
        for place, gradient in enumerate(gradients):
            if gradient is None:
                continue
            if (so_far := self._sum[place]) is not None:
                so_far.add_(gradient)
            elif self._takes_over and _is_as(gradient, self._room[place]):
                self._sum[place] = gradient
            else:
                self._sum[place] = self._room[place].copy_(gradient)

    @override
    def average(self, slots: Sequence[int], places: Sequence[int], is_sum: bool = False) -> Average:
        """See `Slots.average`; consumes the running sum, so call it once for each parameter and round."""
        count = 1 if is_sum else sum(self._counters.valid[slot] for slot in slots)
        gradients: list[Tensor | None] = [None] * len(self._sum)
        for place in places:
            if (total := self._sum[place]) is not None:
                gradients[place] = total.div_(count) if count > 1 else total
                self._sum[place] = None
        return Average(gradients, self._groups_now())

    def _groups_now(self) -> Groups:
        if self._text != self._decoded[0]:
            self._decoded = (self._text, decode(self._text))
        return self._decoded[1]


def _is_as(gradient: Tensor, other: Tensor) -> bool:
    return gradient.dtype == other.dtype and gradient.shape == other.shape and gradient.stride() == other.stride()


class SimulatedTransfer(GradientTransfer):
    """A worker hands over its gradients when they are computed. From a GPU they are copied at once, since the next
    worker's gradients go into the same memory."""

    @override
    def open(self, parameters: Sequence[Tensor]) -> None:
        if not self.partition.device.is_host:
            self._whole = Carrier(self.partition.plan, self.partition.device, parameters)

    @override
    def stage(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        return self.copy_to_host(gradients)

    @override
    def _copied_for_codec(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """They have been here since `stage`."""
        return gradients


class SimulatedHost(InlineHost):
    """The host of workers that are simulated in one process."""

    transfer_class = SimulatedTransfer


class SimulatedServers(SimulatedHost):
    """Simulates server processes: a round is applied a moment after the push that completes it, so a worker that need
    not wait for the update has pulled before. `Clock.sends` has counted the service time."""

    @override
    def pull(self, worker: int) -> list[Newest]:
        newest = super().pull(worker)
        self.close_round()
        return newest

    @override
    def _contributed(self) -> None:
        """Apply the round before any worker goes on, if the rule lets workers wait for it."""
        if self._rule.waits:
            self.close_round()

    @override
    def _helped(self, worker: int) -> bool:
        return self._admission.has_turn(worker) or super()._helped(worker)


class _Releasing(Joined):
    """A worker that releases its version when it rests: nobody reads its parameters until it pulls again."""

    @override
    def _leave(self, counter: int, value: int = 1) -> Waits[None]:
        yield from super()._leave(counter, value)
        for client in self.clients:
            client.replica.await_copy()
            for shard in client.host.partition.shards:
                shard.unpin(self.membership.worker)


class SimulatedWorkers:
    """The workers of `run`, whose clock is `clock`; they join at once, which takes no time.

    `make(worker)`: optimizers over parameters of that worker's own; called again for a worker that returns. `work`:
    asked for a batch before each gradient. `begins(worker)`: called when it has a batch and the version to compute
    from. `gradient_s(worker)`: seconds of its next gradient, by default the clock's. `announce` gets the memory that
    the run needs before it is taken, and may raise. `deadline_s`: of waits for locks, which nobody else holds.

    `next` returns the worker whose gradient is due. Put the gradient into the parameters of `joined[worker]`, whose
    values are the version that it pulled, and call `push`. One model can do that for all workers: `ModelMultiplexer`,
    with its `make`.
    """

    def __init__(
        self,
        run: SharedRun,
        clock: SimulatedClock,
        make: Callable[[int], Sequence[Optimizer]],
        work: Work,
        deadline_s: float = 10.0,
        gradient_s: Callable[[int], float] | None = None,
        watch: Watch | None = None,
        begins: Callable[[int], None] = lambda worker: None,
        announce: Callable[[MemoryNeed], None] = lambda need: None,
    ) -> None:
        assert run.control.clock is clock, "SharedRun(workers, settings, clock)"
        assert not run.settings.has_servers, "servers are the clock's"
        self.run, self.clock = run, clock
        self._make, self._work, self._deadline_s = make, work, deadline_s
        self._begins, self._gradient_s = begins, gradient_s or clock.gradient_s
        self._common = ProcessShared(
            SimulatedCapacity(),
            SimulatedPartition,
            SimulatedServers if clock.settings.server_process else SimulatedHost,
            _Releasing if may_release(run.settings) else Joined,
            in_turn=True,
        )
        self.joined: dict[int, Joined] = {}
        self.pushed: dict[int, PushResult] = {}
        """By worker, the result of its last push; while a gradient travels, of the one before."""
        self._resting: set[int] = set()
        event = run.control.event
        self.scheduler = Scheduler(
            clock,
            self._computes,
            lambda: event.calls,
            self._mark_dead,
            self._rejoin,
            clock.settings.deaths,
            watch,
            self._stop_late if run.settings.rule.stops else lambda: False,
        )
        self._valid, self._ended = True, False
        for worker, joined in self._in_turn(lambda worker: self._join(worker, announce)).items():
            self.joined[worker] = joined

    @property
    def partitions(self) -> list[OptimizerPartition]:
        """One for each optimizer, the same for all workers."""
        return self._common.partitions

    def start(self) -> None:
        """Call all workers' `Joined.start`; what has been written into worker 0's parameters becomes part of the first
        version."""
        self._in_turn(lambda worker: self.joined[worker].start_waits())

    def begin_all(self) -> None:
        """Let all begin, in order; once, before `next`."""
        for worker, joined in sorted(self.joined.items()):
            self.scheduler.live(worker, self._life(worker, joined))

    def next(self) -> int | None:
        """The worker whose gradient is due; None when all have finished or are dead for good. `Deadlock` as in
        `Scheduler.next`."""
        due = self.scheduler.next()
        if due is not None:
            for client in self.joined[due].clients:
                client.replica.open()
        return due

    def push(self, valid: bool = True) -> None:
        """Push the due gradient, which is in its worker's parameters; `valid` as in `Client.push`."""
        self._valid = valid
        self.scheduler.go_on()

    def advance(self) -> None:
        """Let transfers arrive, as far as they do before the next gradient is due."""
        self.scheduler.advance()

    def end_all(self) -> None:
        """Begin no more gradients and abandon those under way; pushes arrive and are applied."""
        self._ended = True
        if not self.scheduler.has_begun:
            self.begin_all()
        self.scheduler.give_up(lambda worker: self.joined[worker].finish_waits())
        due = self.scheduler.next()
        assert due is None, f"worker {due} computes after the end"

    def detach(self) -> None:
        """Give every parameter memory of its own again; nothing else here may be called afterwards."""
        for joined in self.joined.values():
            joined.detach()

    def _in_turn(self, waits_of: Callable[[int], Waits[T]]) -> dict[int, T]:
        """The results of all workers' waits, which wait for each other."""
        left = {worker: waits_of(worker) for worker in range(self.run.control.workers)}
        results: dict[int, T] = {}
        while left:
            for worker, waits in list(left.items()):
                try:
                    next(waits)
                except StopIteration as end:
                    del left[worker]
                    results[worker] = end.value
        return results

    def _join(self, worker: int, announce: Callable[[MemoryNeed], None] = lambda need: None) -> Waits[Joined]:
        membership = self.run.member(worker, self._deadline_s)
        return join_waits(self.run, membership, self._make(worker), announce, self._common)

    def _life(self, worker: int, joined: Joined | None) -> Life:
        if joined is None:
            joined = yield from self._join(worker)
            self.joined[worker] = joined
        yield from self._gradients(worker, joined)

    def _gradients(self, worker: int, joined: Joined, taken: bool = False) -> Life:
        """Begin, and make all gradients until the end. `taken`: it has its first batch already."""
        yield from joined.begin_waits()
        while (taken and not self._ended) or self._takes(worker) or (yield from self._rest(worker, joined)):
            taken = False
            self._begins(worker)
            yield Computes()
            yield from self._push(worker, joined)
        yield from joined.finish_waits()

    def _push(self, worker: int, joined: Joined) -> Life:
        """Push the gradient that is there."""
        for client in joined.clients:
            self.pushed[worker] = yield from client.push_waits(self._valid)
            for parameter in client.replica.parameters:
                parameter.grad = None
        self._work.mark_pushed(worker)
        if self._resting:
            self.run.control.event.wake()  # who rests may wait for this

    def _stop_late(self) -> bool:
        """Restart the gradients that are computed from an older version than the newest, with the same batch; returns
        whether any was."""
        newest = [partition.admission.version() for partition in self.partitions]
        late = [
            worker
            for worker, joined in self.joined.items()
            if self.scheduler.computes(worker)
            and any(own < new for own, new in zip(joined.versions, newest, strict=True))
        ]
        for worker in late:
            left_s = self.scheduler.begin_anew(worker, self._gradients(worker, self.joined[worker], taken=True))
            self.run.control.seconds[worker * ROW + COMPUTE] -= left_s
        return bool(late)

    def _takes(self, worker: int) -> bool:
        return not self._ended and self._work.take_batch(worker)

    def _rest(self, worker: int, joined: Joined) -> Waits[bool]:
        """Wait for batches that a death may bring back; returns whether the worker has taken one."""
        if self._ended or not self._work.may_come_back(worker):
            return False
        self._resting.add(worker)
        try:
            return (yield from self._await_batch(worker, joined))
        finally:
            self._resting.discard(worker)

    def _await_batch(self, worker: int, joined: Joined) -> Waits[bool]:
        taken = False

        def is_decided() -> bool:
            nonlocal taken
            taken = taken or self._takes(worker)
            return taken or self._ended or not self._work.may_come_back(worker)

        def awaited() -> str:
            return f"worker {worker} waits for the others' batches, or for batches that a death may bring back"

        yield Wait(lambda: True, self._deadline_s, awaited)  # who can go on at this moment does so first
        if is_decided():
            return taken
        yield from joined.rest_waits()
        yield Wait(is_decided, self._deadline_s, awaited)
        if taken:
            yield from joined.begin_waits()
        return taken and not self._ended  # the run may have ended while the parameters travelled

    def _computes(self, worker: int) -> float:
        seconds = self._gradient_s(worker)
        self.run.control.seconds[worker * ROW + COMPUTE] += seconds
        return seconds

    def _mark_dead(self, worker: int) -> None:
        self._work.lost(worker)
        self.run.mark_dead(worker)

    def _rejoin(self, worker: int) -> Life:
        self.run.rejoin(worker)
        self._work.returns(worker)
        return self._life(worker, None)
