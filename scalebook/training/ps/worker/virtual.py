"""All workers of a run in one process: their clients, played by a virtual clock. No rule is written here."""

from collections.abc import Callable, Sequence

from torch.optim import Optimizer

from scalebook.training.ps.applying.section import Section
from scalebook.training.ps.clock.scheduler import Computes, Life, Scheduler, Watch
from scalebook.training.ps.clock.steps import Steps
from scalebook.training.ps.clock.virtual import VirtualClock
from scalebook.training.ps.coordination.run import SharedRun
from scalebook.training.ps.worker.join import Common, Joined, join_steps


class VirtualWorkers:
    """The workers of `run`, whose clock is `clock`; they join at once, which takes no time.

    `make(worker)`: optimizers over parameters of that worker's own; again for a worker that returns. `wants(worker)`:
    whether it has a batch to compute on; asked before each of its gradients, once. `gradient_s(worker)`: seconds of its
    next one, the clock's own by default. `deadline_s` is of waits for locks, which nobody else holds.

    `next` says whose gradient is due; put it into the parameters of `joined[worker]`, whose values are those of the
    version that it pulled, and call `push`. One model can do that for all of them: `OneModel`, whose `make` is given.
    """

    def __init__(
        self,
        run: SharedRun,
        clock: VirtualClock,
        make: Callable[[int], Sequence[Optimizer]],
        wants: Callable[[int], bool],
        deadline_s: float = 10.0,
        gradient_s: Callable[[int], float] | None = None,
        watch: Watch | None = None,
    ) -> None:
        assert run.control.clock is clock, "SharedRun(workers, settings, clock)"
        assert run.settings.host == "inline", "servers are the clock's"
        self._run, self._make, self._wants, self._deadline_s = run, make, wants, deadline_s
        self._common = Common()
        self.joined: dict[int, Joined] = {}
        event = run.control.event
        self.scheduler = Scheduler(
            clock, gradient_s or clock.gradient_s, lambda: event.calls, run.mark_dead, self._rejoin,
            clock.settings.deaths, watch,
        )  # fmt: skip
        self._valid = True
        self._join()

    @property
    def sections(self) -> list[Section]:
        """One for each optimizer, the same for all workers."""
        return self._common.sections

    def begin(self) -> None:
        """Let all begin, in order; once, before `next`."""
        for worker, joined in sorted(self.joined.items()):
            self.scheduler.live(worker, self._life(worker, joined))

    def next(self) -> int | None:
        """Whose gradient is due; None when all have finished or are dead for good. `Deadlock` as the scheduler."""
        return self.scheduler.next()

    def push(self, valid: bool = True) -> None:
        """The gradient that was due is in its worker's parameters; `valid` as `Client.push` has it."""
        self._valid = valid
        self.scheduler.go_on()

    def detach(self) -> None:
        """Give every parameter memory of its own again; nothing else here may be called afterwards."""
        for joined in self.joined.values():
            joined.detach()

    def _join(self) -> None:
        """All in turn, since they wait for each other."""
        joining = {worker: self._join_steps(worker) for worker in range(self._run.control.workers)}
        while joining:
            for worker, steps in list(joining.items()):
                try:
                    next(steps)
                except StopIteration as end:
                    del joining[worker]
                    self.joined[worker] = end.value

    def _join_steps(self, worker: int) -> Steps[Joined]:
        membership = self._run.member(worker, self._deadline_s)
        return join_steps(self._run, membership, self._make(worker), common=self._common)

    def _life(self, worker: int, joined: Joined | None) -> Life:
        if joined is None:
            joined = yield from self._join_steps(worker)
            self.joined[worker] = joined
        yield from joined.begin_steps()
        while self._wants(worker):
            yield Computes()
            valid = self._valid
            for client in joined.clients:
                yield from client.push_steps(valid)
                for parameter in client.replica.parameters:
                    parameter.grad = None
        yield from joined.finish_steps()

    def _rejoin(self, worker: int) -> Life:
        self._run.rejoin(worker)
        return self._life(worker, None)
