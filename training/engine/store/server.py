"""The body of a server process: applies what workers push, to one shard of every optimizer."""

from collections.abc import Sequence

from torch.nn import Module
from torch.optim import Optimizer

from scalebook.training.engine.coordination.run import SharedRun
from scalebook.training.engine.memory.region import STARTED, Control
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition, make_partitions, plan_partitions
from scalebook.training.engine.store.table_optimizer import mark_tables


class Server:
    """Server number `number`; ends when no worker will push any more and nothing is left to apply.

    All its data lies in shared memory, and one store publishes an update. So a server that replaces a dead one goes on
    where that one stopped: nothing is lost, and nothing is applied twice.
    """

    def __init__(self, number: int, control: Control, partitions: list[OptimizerPartition], deadline_s: float) -> None:
        self.number, self._control, self._deadline_s = number, control, deadline_s
        self._partitions = [partition for partition in partitions if number < len(partition.shards)]
        self._next = 0  # the worker that is looked at first, so that none is served before another twice

    def run(self) -> None:
        """Serve to the end. TimeoutError when nothing happens for the deadline while workers train."""
        while True:
            while any([self._serve(partition) for partition in self._partitions]):  # noqa: C419  # all of them, not the first
                pass
            if not self._control.training() and not self._has_work():
                return
            self._control.event.wait(self._must_look, self._deadline_s, self._what)

    def _what(self) -> str:
        return f"server {self.number} waits for pushes"

    def _must_look(self) -> bool:
        return self._has_work() or not self._control.training()

    def _has_work(self) -> bool:
        for partition in self._partitions:
            if partition.admission.rule.gathers:
                if (
                    partition.rounds.close()
                    and partition.shards[self.number].version <= partition.admission.round().version
                ):
                    return True
            elif self._pending(partition) is not None:
                return True
        return False

    def _serve(self, partition: OptimizerPartition) -> bool:
        """Apply one push, or this shard's part of a round; False when there is none."""
        if partition.admission.rule.gathers:
            version = partition.shards[self.number].version
            if partition.rounds.close():
                partition.rounds.commit([self.number])
            return partition.shards[self.number].version > version
        worker = self._pending(partition)
        if worker is None:
            return False
        shard, slot = partition.shards[self.number], worker
        filled = partition.slots.read(slot)
        gradients = [filled.gradients[place] for place in shard.plan.parameters]
        with shard.applying, shard.serving():
            shard.apply([partition.slots.origin(slot, self.number)], gradients, filled.groups)
        self._next = worker + 1
        self._control.event.wake()
        return True

    def _pending(self, partition: OptimizerPartition) -> int | None:
        """A worker whose push is ready for this shard."""
        shard, workers = partition.shards[self.number], self._control.workers
        for offset in range(workers):
            worker = (self._next + offset) % workers
            if shard.counters.pushed[worker] > shard.applied(worker):
                return worker
        return None


def serve(
    run: SharedRun, server: int, deadline_s: float, optimizers: Sequence[Optimizer], model: Module | None = None
) -> None:
    """The body of server process `server`, with the same optimizers as the workers; returns when they have finished."""
    if model is not None:
        mark_tables(model)
    control = run.control
    what = f"server {server} waits for worker 0"
    control.event.wait(lambda: bool(control.head[STARTED]) or not control.training(), deadline_s, lambda: what)
    if control.head[STARTED]:
        plans = plan_partitions(run, optimizers)
        Server(server, control, make_partitions(run, plans, optimizers, server, deadline_s), deadline_s).run()
