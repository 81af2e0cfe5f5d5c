"""The body of a server process: applies what workers push, to one shard of every optimizer."""

from collections.abc import Sequence

from torch.nn import Module
from torch.optim import Optimizer

from scalebook.training.engine.coordination.run import SharedRun
from scalebook.training.engine.memory.region import STARTED, Control
from scalebook.training.engine.store.optimizer_partition import OptimizerPartition, make_sections, plan_sections
from scalebook.training.engine.store.table_optimizer import mark_tables


class Server:
    """Server number `number`; ends when no worker will push any more and nothing is left to apply.

    All its data lies in shared memory, and one store publishes an update. So a server that replaces a dead one goes on
    where that one stopped: nothing is lost, and nothing is applied twice.
    """

    def __init__(self, number: int, control: Control, sections: list[OptimizerPartition], deadline_s: float) -> None:
        self.number, self._control, self._deadline_s = number, control, deadline_s
        self._sections = [section for section in sections if number < len(section.shards)]
        self._next = 0  # the worker that is looked at first, so that none is served before another twice

    def run(self) -> None:
        """Serve to the end. TimeoutError when nothing happens for the deadline while workers train."""
        while True:
            while any([self._serve(section) for section in self._sections]):  # noqa: C419  # all of them, not the first
                pass
            if not self._control.training() and not self._has_work():
                return
            self._control.event.wait(self._must_look, self._deadline_s, self._what)

    def _what(self) -> str:
        return f"server {self.number} waits for pushes"

    def _must_look(self) -> bool:
        return self._has_work() or not self._control.training()

    def _has_work(self) -> bool:
        for section in self._sections:
            if section.admission.rule.gathers:
                if section.rounds.close() and section.shards[self.number].version <= section.admission.round().version:
                    return True
            elif self._pending(section) is not None:
                return True
        return False

    def _serve(self, section: OptimizerPartition) -> bool:
        """Apply one push, or this shard's part of a round; False when there is none."""
        if section.admission.rule.gathers:
            version = section.shards[self.number].version
            if section.rounds.close():
                section.rounds.commit([self.number])
            return section.shards[self.number].version > version
        worker = self._pending(section)
        if worker is None:
            return False
        shard, slot = section.shards[self.number], worker
        filled = section.slots.read(slot)
        gradients = [filled.gradients[place] for place in shard.plan.parameters]
        with shard.applying, shard.serving():
            shard.apply([section.slots.origin(slot, self.number)], gradients, filled.groups)
        self._next = worker + 1
        self._control.event.wake()
        return True

    def _pending(self, section: OptimizerPartition) -> int | None:
        """A worker whose push is ready for this shard."""
        shard, workers = section.shards[self.number], self._control.workers
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
        plans = plan_sections(run, optimizers)
        Server(server, control, make_sections(run, plans, optimizers, server, deadline_s), deadline_s).run()
