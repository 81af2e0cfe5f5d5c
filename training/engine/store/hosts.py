"""A worker's interface to the shards of one optimizer, and its implementations: the worker applies a push, or servers
do."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

import torch
from torch import Tensor

from scalebook.training.engine.coordination.admission import Verdict
from scalebook.training.engine.hyper import Groups
from scalebook.training.engine.memory.region import METER, PUSHED, ROW, WAIT
from scalebook.training.engine.rules.codecs import rounded_to, stays_finite
from scalebook.training.engine.store.coded_traffic import Carrier
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition
from scalebook.training.engine.store.shard import Newest
from scalebook.training.engine.trace import Origin
from scalebook.training.engine.worker_clock import Wait, Waits

ROW_NUMBER: Final = 8
"""Bytes of a row's number in a table."""


class Push(NamedTuple):
    """A worker's `seq`-th gradient for one optimizer, on its way to the shards.

    `bases`: for each shard the version that it was computed from, and where that lies. `pulled`: when these were
    pulled, in seconds of the run's clock. `gradients`: one for each parameter, in the optimizer's order and the
    parameter's shape; None if the backward pass left none. They may lie on the device if the host copies them from
    there. `groups`: the param groups with the present hyper-parameters. `valid` False: the gradient must not be applied
    (a loss scaler found infinities), but the rule counts the push.
    """

    worker: int
    seq: int
    bases: Sequence[Newest]
    pulled: float
    gradients: list[Tensor | None]
    groups: Groups
    valid: bool
    sizes: Sequence[int]  # bytes of the gradients as they travel, by shard

    def origin(self, shard: int) -> Origin:
        """The gradient's origin at one shard."""
        base = self.bases[shard]
        return Origin(self.worker, self.seq, base.version, base.buffer, self.pulled)


class EncodedPush(NamedTuple):
    """A gradient ready to send. `frames`: by shard, None if it is sent raw. `sizes`: bytes by shard."""

    gradients: list[Tensor | None]
    frames: list[Tensor] | None
    sizes: Sequence[int]


class Outcome(NamedTuple):
    """The verdict on a push (admitted, dropped, or the budget of updates is used up), and its staleness in versions."""

    verdict: Verdict
    staleness: int


class Host(ABC):
    """One worker's interface to the shards of one optimizer; every wait ends with a TimeoutError after
    `OptimizerPartition.deadline_s`.

    A push is applied at most once, even if a process dies in the middle of it. When `push` returns, the worker may
    overwrite its gradients. Methods that may wait return a coroutine, which the run's
    clock runs (`engine/worker_clock.py`).
    """

    pipelines: ClassVar[bool] = True
    """Whether it takes gradients from the device itself, and applies one shard while the next arrives."""
    steps_here: ClassVar[bool] = True
    """Whether steps are made in this process, and so with what the worker's code does to its optimizer meanwhile."""

    def __init__(self, partition: OptimizerPartition) -> None:
        self.partition = partition
        self._control, self._admission, self._shards = partition.control, partition.admission, partition.shards
        self._rule, self._deadline_s = partition.admission.rule, partition.deadline_s
        self._now = partition.control.clock.now
        fields = partition.plan.gradients.fields
        self._bytes = [[(place, fields[place].nbytes) for place in shard.plan.parameters] for shard in partition.shards]
        self._sizes = [sum(size for _, size in shard) for shard in self._bytes]
        self._row_bytes = [
            [(table.place, ROW_NUMBER + table.row_bytes) for table in shard.plan.tables] for shard in partition.shards
        ]
        self._meters = [shard.counters.meters for shard in partition.shards]
        self._coded = partition.coded
        self.keeps = True
        """Whether residuals are kept in this process; false in the proxy of a remote worker."""
        self._carrier: Carrier | None = None
        self._bringer: Carrier | None = None
        self._rounder: Carrier | None = None
        self._made_where: Sequence[Tensor] = ()

    def carry(self, parameters: Sequence[Tensor]) -> None:
        """Copy gradients from the device of these parameters; called once, for a worker that computes there."""
        if self.partition.device.is_host:
            return
        plan, device = self.partition.plan, self.partition.device
        halves = rounded_to(self._control.settings.push_codec)
        if halves is not None and not plan.rows.nbytes:
            self._rounder = Carrier(plan, device, parameters, dtype=getattr(torch, halves))
            self._made_where = parameters
            return
        carries = self.pipelines and self._coded is None
        self._bringer = Carrier(plan, device, parameters, lands=not carries or not plan.slots)
        self._carrier = self._bringer if carries else None

    def release_carriers(self) -> None:
        """Release resources at the end of the worker, when nothing is under way."""
        for carrier in (self._bringer, self._rounder):
            if carrier is not None:
                carrier.release()

    def collect(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """Move computed gradients to where they can stay until they are pushed."""
        return gradients

    def bring(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """The gradients on the host; valid until the next call."""
        if self._bringer is None and self._made_where:
            self._bringer = Carrier(self.partition.plan, self.partition.device, self._made_where)
        return gradients if self._bringer is None else self._bringer.bring(gradients)

    def _brought(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """The gradients on the host, ready to be encoded. For a codec that rounds to 16 bits the device rounds them
        before the copy. If that makes a value infinite, the frame is uncompressed, and its values are copied
        separately."""
        if self._rounder is None:
            return self.bring(gradients)
        halves = self._rounder.bring(gradients)
        codec = self._control.settings.push_codec
        is_finite = stays_finite(codec) or all(bool(torch.isfinite(one).all()) for one in halves if one is not None)
        return halves if is_finite else self.bring(gradients)

    def _set_out(self, push: Push, slot: int | None = None) -> None:
        if self._carrier is not None:
            memory = None if slot is None else self.partition.slots.memory(slot)
            self._carrier.set_out(push.gradients, memory, self.partition.order)

    def _arrive(self, number: int) -> None:
        """Wait until a shard's part of the push is here."""
        if self._carrier is not None:
            self._carrier.arrive(number)

    @abstractmethod
    def push(self, push: Push) -> Waits[Outcome]:
        """Hand in a gradient, and return what became of it. TimeoutError when nothing happens for the deadline."""

    @abstractmethod
    def flush(self, worker: int) -> Waits[None]:
        """Wait until the last push of `worker` has been applied; returns at once if `push` waits for that."""

    @abstractmethod
    def await_turn(self, worker: int) -> Waits[None]:
        """Wait until the rule lets `worker` begin its next gradient, or the budget of updates is used up."""

    @abstractmethod
    def help(self) -> None:
        """Apply a round that became complete without a push: another worker finished, rests or died. Servers do it
        themselves."""

    @abstractmethod
    def complete(self) -> Waits[None]:
        """After all workers have finished: wait until everything that they pushed has been applied."""

    @abstractmethod
    def _await_round(self, worker: int) -> Waits[None]:
        """Return when a closed round may have been applied, by this worker or by others."""

    def is_over(self) -> bool:
        """Whether the budget of updates is used up."""
        return self._admission.is_over()

    def has_dropped(self, bases: Sequence[Newest]) -> bool:
        """Whether the round of a push, whose turn has come, was never completed, since a worker was asked to stop."""
        return self._admission.is_stopped and self._admission.version() <= min(base.version for base in bases)

    def fetch_full(self) -> None:  # noqa: B027  # in shared memory there is nothing to do
        """Fetch the newest versions and states, to be read here. No-op in shared memory."""

    def refetch(self) -> None:  # noqa: B027  # in shared memory there is nothing to do
        """Before training: fetch the held versions again, which worker 0 may have written into. No-op in shared
        memory."""

    def publish_initial(self) -> None:  # noqa: B027  # in shared memory there is nothing to do
        """Called by worker 0 before training: make the versions and states that it has written here the run's. No-op in
        shared memory."""

    def pull(self, worker: int) -> list[Newest]:
        """Pin and return the newest version of each shard for `worker`. Nobody writes to these versions before its next
        pull."""
        return [shard.pin(worker) for shard in self._shards]

    def sizes(self, gradients: Sequence[Tensor | None]) -> Sequence[int]:
        """Bytes, by shard, of the `gradients` that are not None; one entry for each parameter. A sparse gradient counts
        its row numbers and values."""
        if all(gradient is not None for gradient in gradients):
            sizes = self._sizes
        else:
            sizes = [sum(size for place, size in shard if gradients[place] is not None) for shard in self._bytes]
        if not self.partition.plan.rows.nbytes:
            return sizes
        return [size + _of_rows(gradients, of) for size, of in zip(sizes, self._row_bytes, strict=True)]

    def send(self, worker: int, seq: int, gradients: list[Tensor | None], valid: bool) -> EncodedPush:
        """Encode a push, if a codec is used."""
        if self._coded is not None and not valid:  # only that it is there travels
            return EncodedPush([None] * len(gradients), None, [0] * len(self._shards))
        if self._carrier is None:
            gradients = self._brought(gradients)
        if self._coded is None:
            return EncodedPush(gradients, None, self.sizes(gradients))
        frames = self._coded.encode(worker, seq, gradients)
        return EncodedPush(gradients, frames, [frame.numel() for frame in frames])

    def receive(self, way: EncodedPush) -> list[Tensor | None]:
        """The decoded gradients; valid until the next call."""
        if self._coded is None or way.frames is None:
            return way.gradients
        return self._coded.decode(way.frames)

    def store_residuals(self, push: Push, outcome: Outcome) -> None:
        """After an admitted push: its residual counts for the worker's next one."""
        if self._coded is not None and self.keeps and push.valid and outcome.verdict is Verdict.ADMIT:
            self._coded.store_residual(push.worker, push.seq)

    def come_back(self, worker: int) -> None:
        """As `store_residuals`, for a worker that died in a push and is back, once that push is settled."""
        if self._coded is not None and self.keeps:
            self._coded.come_back(worker, self._shards)

    def _contribute(self, push: Push) -> Waits[Outcome]:
        """Under a gathering rule: write the gradient into a slot and add it to the round."""
        rounds, base = self.partition.rounds, min(base.version for base in push.bases)
        slot = rounds.slot(push.worker)
        self._set_out(push, slot)
        self._fill(slot, push)
        for number in self.partition.order:
            self._arrive(number)
        while (verdict := rounds.register(push.worker, slot, base)) is None:
            yield from self._await_round(push.worker)
        outcome = Outcome(verdict, self._admission.version() - base)
        self._contributed()
        return outcome

    @abstractmethod
    def _contributed(self) -> None:
        """Called when a gradient has joined a round, which may be complete now."""

    def _fill(self, slot: int, push: Push) -> None:
        origins = [push.origin(number) for number in range(len(self._shards))]
        is_carried = self._carrier is not None
        self.partition.slots.write(slot, origins, push.gradients, push.groups, push.valid, is_carried)
        self._handed_in(push)

    def _handed_in(self, push: Push) -> None:
        """Add the push's bytes to the worker's counter; called once for each push."""
        offset = push.worker * METER + PUSHED
        for meters, size in zip(self._meters, push.sizes, strict=True):
            meters[offset] += size

    def _waited(self, worker: int, since: float) -> None:
        self._control.seconds[worker * ROW + WAIT] += self._now() - since

    def _staleness(self, push: Push) -> int:
        """Versions that the shards have moved on since `push` was computed; the largest over the shards."""
        pairs = zip(self._shards, push.bases, strict=True)
        return max(shard.version - base.version for shard, base in pairs)


def _of_rows(gradients: Sequence[Tensor | None], tables: Sequence[tuple[int, int]]) -> int:
    """Bytes of sparse gradients; `tables`: places, and bytes of a row."""
    return sum(len(g._values()) * size for place, size in tables if (g := gradients[place]) is not None)


class InlineHost(Host):
    """The worker applies its own pushes: one pass over the parameters for each update, and no copy for SGD."""

    def __init__(self, partition: OptimizerPartition) -> None:
        super().__init__(partition)
        self._places = [shard.plan.parameters for shard in partition.shards]
        self._gives_base = self._control.settings.can_reuse_base

    def push(self, push: Push) -> Waits[Outcome]:
        if self._rule.gathers:
            return (yield from self._contribute(push))
        staleness = self._staleness(push)
        if not push.valid:
            return Outcome(Verdict.DROP, staleness)
        self._set_out(push)
        if not self._admission.must_ask:
            self._apply(push)
            return Outcome(Verdict.ADMIT, staleness)
        with self._admission.locked():
            staleness = self._staleness(push)
            verdict = self._admission.judge(push.worker, push.seq, staleness)
            if verdict is Verdict.ADMIT and self._control.settings.serial:
                self._apply(push)
                return Outcome(verdict, staleness)
        if verdict is Verdict.ADMIT:
            self._apply(push)
        return Outcome(verdict, staleness)

    def flush(self, worker: int) -> Waits[None]:
        """No-op: a push returns after it has been applied."""
        yield from ()

    def await_turn(self, worker: int) -> Waits[None]:
        began = self._now()
        if self._rule.gathers:
            what = f"worker {worker} waits in rule {self._rule.name}"
            yield Wait(lambda: self._helped(worker), self._deadline_s, lambda: what)
        else:
            yield from self._admission.await_turn(worker)
        self._waited(worker, began)

    def help(self) -> None:
        if self._rule.gathers and self.partition.rounds.close():
            self.partition.rounds.commit()

    def _contributed(self) -> None:
        self.help()

    def complete(self) -> Waits[None]:
        self.help()
        yield from ()

    def _apply(self, push: Push) -> None:
        """Apply each shard's part when it is there, while the next arrives."""
        pusher = push.worker if self._gives_base else None
        landed = push.gradients if self._carrier is None else self._carrier.landed(push.gradients)
        for number in self.partition.order:
            shard = self._shards[number]
            self._arrive(number)
            began = self._now()
            with shard.applying:
                self._waited(push.worker, began)
                gradients = [landed[place] for place in self._places[number]]
                with shard.serving():
                    shard.apply([push.origin(number)], gradients, push.groups, pusher)
        self._handed_in(push)

    def _await_round(self, worker: int) -> Waits[None]:
        self.partition.rounds.commit()
        yield from ()

    def _helped(self, worker: int) -> bool:
        """Whether the worker may begin; applies a complete round first."""
        self.help()
        return self._admission.has_turn(worker)


class ProcessHost(Host):
    """Server processes apply pushes. With host `overlap` a worker computes while its push is applied.

    A worker's replica is a version in shared memory, as under the inline host: a pull copies nothing.
    """

    steps_here = False

    def __init__(self, partition: OptimizerPartition) -> None:
        super().__init__(partition)
        self._overlap, self._serial = self._control.settings.overlap, self._control.settings.serial

    def push(self, push: Push) -> Waits[Outcome]:
        if self._rule.gathers:
            return (yield from self._contribute(push))
        yield from self.flush(push.worker)
        staleness = self._staleness(push)
        if not push.valid:
            return Outcome(Verdict.DROP, staleness)
        self._set_out(push, push.worker)
        if not self._admission.must_ask:
            self._hand_in(push)
        else:
            with self._admission.locked():
                staleness = self._staleness(push)
                verdict = self._admission.judge(push.worker, push.seq, staleness)
                if verdict is Verdict.ADMIT and self._serial:
                    self._hand_in(push)
                    yield from self.flush(push.worker)
            if verdict is not Verdict.ADMIT:
                return Outcome(verdict, staleness)
            if not self._serial:
                self._hand_in(push)
        if not self._overlap:
            yield from self.flush(push.worker)
        return Outcome(Verdict.ADMIT, staleness)

    def flush(self, worker: int) -> Waits[None]:
        if self._rule.gathers or self._settled(worker):
            return
        began = self._now()
        what = f"worker {worker} waits for the server processes"
        yield Wait(lambda: self._settled(worker), self._deadline_s, lambda: what)
        self._waited(worker, began)

    def await_turn(self, worker: int) -> Waits[None]:
        began = self._now()
        yield from self._admission.await_turn(worker)
        self._waited(worker, began)

    def help(self) -> None:
        """No-op: the servers close and apply rounds."""

    def _contributed(self) -> None:
        """No-op: the servers close and apply rounds."""

    def complete(self) -> Waits[None]:
        yield Wait(self._is_complete, self._deadline_s, lambda: "the last pushes wait for the servers")

    def _is_complete(self) -> bool:
        if self._rule.gathers:
            return self._admission.round().gathered == 0
        return all(self._settled(worker) for worker in range(self._control.workers))

    def _settled(self, worker: int) -> bool:
        return all(shard.applied(worker) >= shard.counters.pushed[worker] for shard in self._shards)

    def _hand_in(self, push: Push) -> None:
        """Write each shard's part when it is there; its server applies it while the next arrives."""
        self._fill(push.worker, push)
        for number in self.partition.order:
            self._arrive(number)
            self._shards[number].counters.pushed[push.worker] = push.seq
            if self._carrier is not None:
                self._control.event.wake()
        self._control.event.wake()

    def _await_round(self, worker: int) -> Waits[None]:
        began, what = self._now(), f"worker {worker} waits for the servers to apply a round"
        yield Wait(lambda: not self._admission.round().closed, self._deadline_s, lambda: what)
        self._waited(worker, began)


def make_host(partition: OptimizerPartition) -> Host:
    """The host that the settings name."""
    return ProcessHost(partition) if partition.control.settings.has_servers else InlineHost(partition)
