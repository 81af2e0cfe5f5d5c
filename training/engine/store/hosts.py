"""A worker's interface to the shards of one optimizer, and its implementations: the worker applies a push, or servers
do."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from scalebook.training.engine.coordination.admission import Verdict
from scalebook.training.engine.memory.region import METER, PUSHED, ROW, WAIT
from scalebook.training.engine.store.gradient_transfer import GradientTransfer, Push
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition
from scalebook.training.engine.store.shard import Newest
from scalebook.training.engine.worker_clock import Wait, Waits


class Outcome(NamedTuple):
    """The verdict on a push (admitted, dropped, or the budget of updates is used up), and its staleness in versions."""

    verdict: Verdict
    staleness: int


class Versions:
    """How this process's copy of versions and states is kept equal to the run's. In shared memory it is the run's, so
    there is nothing to do."""

    def fetch(self) -> None:
        """Fetch the newest versions and states, to be read here."""

    def fetch_held(self) -> None:
        """Before training: fetch the held versions again, which worker 0 may have written into."""

    def publish(self) -> None:
        """By worker 0 before training: make the versions and states that it has written here the run's."""


class Host(ABC):
    """One worker's interface to the shards of one optimizer.

    `open` before the first gradient and after each rest; `push`, `await_turn` and `pull` for each gradient; `flush` and
    `close` at the end. A push is applied at most once, even if a process dies in the middle of it. When `push` returns,
    the worker may overwrite its gradients. Methods that may wait return a coroutine, which the run's clock runs
    (`engine/worker_clock.py`); every wait ends with a TimeoutError after `OptimizerPartition.deadline_s`.

    `transfer`: takes gradients from the device, and encodes and decodes them. `versions`: see there.
    """

    steps_here: ClassVar[bool] = True
    """Whether steps are made in this process, and so with what the worker's code does to its optimizer meanwhile."""
    pipelines: ClassVar[bool] = True
    """As in `GradientTransfer`."""
    transfer_class: ClassVar[type[GradientTransfer]] = GradientTransfer

    def __init__(self, partition: OptimizerPartition) -> None:
        self.partition, self.versions = partition, Versions()
        self.transfer = self.transfer_class(partition, self.pipelines)
        self._control, self._admission, self._shards = partition.control, partition.admission, partition.shards
        self._rule, self._deadline_s = partition.admission.rule, partition.deadline_s
        self._now = partition.control.clock.now
        self._meters = [shard.counters.meters for shard in partition.shards]

    def open(self, worker: int) -> Waits[None]:
        """Before the worker's first gradient, and when it goes on after a rest or a death: wait until what it has
        pushed before is applied and the rule lets it begin."""
        yield from self.flush(worker)
        self.transfer.repair_residual(worker)
        yield from self.await_turn(worker)

    @abstractmethod
    def push(self, push: Push) -> Waits[Outcome]:
        """Hand in a gradient, and return what became of it. TimeoutError when nothing happens for the deadline."""

    def pull(self, worker: int) -> list[Newest]:
        """Pin and return the newest version of each shard for `worker`. Nobody writes to these versions before its next
        pull."""
        return [shard.pin(worker) for shard in self._shards]

    @abstractmethod
    def await_turn(self, worker: int) -> Waits[None]:
        """Wait until the rule lets `worker` begin its next gradient, or the budget of updates is used up."""

    @abstractmethod
    def flush(self, worker: int | None = None) -> Waits[None]:
        """Wait until the last push of `worker` has been applied; of all workers, which have finished, without one."""

    def is_over(self) -> bool:
        """Whether the budget of updates is used up."""
        return self._admission.is_over()

    def close_round(self) -> None:  # noqa: B027  # a host whose server does it has nothing to do
        """Apply a round that became complete without a push: another worker finished, rests or died. Servers do it
        themselves."""

    def close(self) -> None:
        """Release resources at the end of the worker, when nothing is under way."""
        self.transfer.close()
        self.partition.registered.release()


class _SharedHost(Host):
    """What the hosts have in common whose shards lie in this machine's shared memory."""

    def _contribute(self, push: Push) -> Waits[Outcome]:
        """Under a gathering rule: write the gradient into a slot and add it to the round."""
        rounds, base = self.partition.rounds, min(base.version for base in push.bases)
        slot = rounds.slot(push.worker)
        self.transfer.start_copy(push.gradients, slot)
        self._write_slot(slot, push)
        for number in self.partition.order:
            self.transfer.await_copy(number)
        while (verdict := rounds.register(push.worker, slot, base)) is None:
            yield from self._await_round(push.worker)
        outcome = Outcome(verdict, self._admission.version() - base)
        self._contributed()
        return outcome

    @abstractmethod
    def _await_round(self, worker: int) -> Waits[None]:
        """Return when a closed round may have been applied, by this worker or by others."""

    @abstractmethod
    def _contributed(self) -> None:
        """Called when a gradient has joined a round, which may be complete now."""

    def _write_slot(self, slot: int, push: Push) -> None:
        origins = [push.origin(number) for number in range(len(self._shards))]
        self.partition.slots.write(slot, origins, push.gradients, push.groups, push.valid, self.transfer.is_pipelined)
        self._count_bytes(push)

    def _count_bytes(self, push: Push) -> None:
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


class InlineHost(_SharedHost):
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
        self.transfer.start_copy(push.gradients)
        if not self._admission.must_ask:
            self._apply(push)
            return Outcome(Verdict.ADMIT, staleness)
        with self._admission.locked():
            staleness = self._staleness(push)
            verdict = self._admission.judge(push.worker, push.seq, staleness)
            if verdict is Verdict.ADMIT and self._control.settings.applies_one_at_a_time:
                self._apply(push)
                return Outcome(verdict, staleness)
        if verdict is Verdict.ADMIT:
            self._apply(push)
        return Outcome(verdict, staleness)

    def flush(self, worker: int | None = None) -> Waits[None]:
        """A push returns after it has been applied, apart from the last round."""
        if worker is None:
            self.close_round()
        yield from ()

    def await_turn(self, worker: int) -> Waits[None]:
        began = self._now()
        if self._rule.gathers:
            what = f"worker {worker} waits in rule {self._rule.name}"
            yield Wait(lambda: self._helped(worker), self._deadline_s, lambda: what)
        else:
            yield from self._admission.await_turn(worker)
        self._waited(worker, began)

    def close_round(self) -> None:
        if self._rule.gathers and self.partition.rounds.close():
            self.partition.rounds.commit()

    def _contributed(self) -> None:
        self.close_round()

    def _apply(self, push: Push) -> None:
        """Apply each shard's part when it is there, while the next arrives."""
        pusher = push.worker if self._gives_base else None
        copied = self.transfer.copied(push.gradients)
        for number in self.partition.order:
            shard = self._shards[number]
            self.transfer.await_copy(number)
            began = self._now()
            with shard.applying:
                self._waited(push.worker, began)
                gradients = [copied[place] for place in self._places[number]]
                with shard.serving():
                    shard.apply([push.origin(number)], gradients, push.groups, pusher)
        self._count_bytes(push)

    def _await_round(self, worker: int) -> Waits[None]:
        self.partition.rounds.commit()
        yield from ()

    def _helped(self, worker: int) -> bool:
        """Whether the worker may begin; applies a complete round first."""
        self.close_round()
        return self._admission.has_turn(worker)


class ProcessHost(_SharedHost):
    """Server processes apply pushes. With host `overlap` a worker computes while its push is applied.

    A worker's replica is a version in shared memory, as under the inline host: a pull copies nothing.
    """

    steps_here = False

    def __init__(self, partition: OptimizerPartition) -> None:
        super().__init__(partition)
        self._overlap, self._one_at_a_time = (
            self._control.settings.overlap,
            self._control.settings.applies_one_at_a_time,
        )

    def push(self, push: Push) -> Waits[Outcome]:
        if self._rule.gathers:
            return (yield from self._contribute(push))
        yield from self.flush(push.worker)
        staleness = self._staleness(push)
        if not push.valid:
            return Outcome(Verdict.DROP, staleness)
        self.transfer.start_copy(push.gradients, push.worker)
        if not self._admission.must_ask:
            self._submit(push)
        else:
            with self._admission.locked():
                staleness = self._staleness(push)
                verdict = self._admission.judge(push.worker, push.seq, staleness)
                if verdict is Verdict.ADMIT and self._one_at_a_time:
                    self._submit(push)
                    yield from self.flush(push.worker)
            if verdict is not Verdict.ADMIT:
                return Outcome(verdict, staleness)
            if not self._one_at_a_time:
                self._submit(push)
        if not self._overlap:
            yield from self.flush(push.worker)
        return Outcome(Verdict.ADMIT, staleness)

    def flush(self, worker: int | None = None) -> Waits[None]:
        if worker is None:
            yield Wait(self._is_complete, self._deadline_s, lambda: "the last pushes wait for the servers")
            return
        if self._rule.gathers or self._is_applied(worker):
            return
        began = self._now()
        what = f"worker {worker} waits for the server processes"
        yield Wait(lambda: self._is_applied(worker), self._deadline_s, lambda: what)
        self._waited(worker, began)

    def await_turn(self, worker: int) -> Waits[None]:
        began = self._now()
        yield from self._admission.await_turn(worker)
        self._waited(worker, began)

    def _contributed(self) -> None:
        """No-op: the servers close and apply rounds."""

    def _is_complete(self) -> bool:
        if self._rule.gathers:
            return self._admission.round().gathered == 0
        return all(self._is_applied(worker) for worker in range(self._control.workers))

    def _is_applied(self, worker: int) -> bool:
        return all(shard.applied(worker) >= shard.counters.pushed[worker] for shard in self._shards)

    def _submit(self, push: Push) -> None:
        """Write each shard's part when it is there; its server applies it while the next arrives."""
        self._write_slot(push.worker, push)
        for number in self.partition.order:
            self.transfer.await_copy(number)
            self._shards[number].counters.pushed[push.worker] = push.seq
            if self.transfer.is_pipelined:
                self._control.event.wake()
        self._control.event.wake()

    def _await_round(self, worker: int) -> Waits[None]:
        began, what = self._now(), f"worker {worker} waits for the servers to apply a round"
        yield Wait(lambda: not self._admission.round().closed, self._deadline_s, lambda: what)
        self._waited(worker, began)


def make_host(partition: OptimizerPartition) -> Host:
    """The host that the settings name."""
    return ProcessHost(partition) if partition.control.settings.has_servers else InlineHost(partition)
