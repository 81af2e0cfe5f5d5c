"""Shards with a server process each: a worker lays its gradient into shared memory, the servers apply it."""

from scalebook.training.ps.applying.hosts.base import Host, Outcome, Push
from scalebook.training.ps.applying.section import Section
from scalebook.training.ps.clock import Steps, Wait
from scalebook.training.ps.coordination.admission import Verdict


class ProcessHost(Host):
    """Servers isolate the parameters from the workers; with host `overlap` a worker computes while its push is applied.

    A worker's replica is a version in shared memory, as under the inline host: a pull copies nothing.
    """

    def __init__(self, section: Section) -> None:
        super().__init__(section)
        self._overlap, self._serial = self._control.settings.overlap, self._control.settings.serial

    def push(self, push: Push) -> Steps[Outcome]:
        if self._rule.gathers:
            return (yield from self._contribute(push))
        yield from self.settle(push.worker)
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
                    yield from self.settle(push.worker)
            if verdict is not Verdict.ADMIT:
                return Outcome(verdict, staleness)
            if not self._serial:
                self._hand_in(push)
        if not self._overlap:
            yield from self.settle(push.worker)
        return Outcome(Verdict.ADMIT, staleness)

    def settle(self, worker: int) -> Steps[None]:
        if self._rule.gathers or self._settled(worker):
            return
        asked = self._now()
        what = f"worker {worker} waits for the server processes"
        yield Wait(lambda: self._settled(worker), self._deadline_s, lambda: what)
        self._waited(worker, asked)

    def await_turn(self, worker: int) -> Steps[None]:
        asked = self._now()
        yield from self._admission.await_turn(worker)
        self._waited(worker, asked)

    def help(self) -> None:
        """Nothing to do: the servers close and apply rounds."""

    def _contributed(self) -> None:
        """Nothing to do, as for `help`."""

    def complete(self) -> Steps[None]:
        yield Wait(self._is_complete, self._deadline_s, lambda: "the last pushes wait for the servers")

    def _is_complete(self) -> bool:
        if self._rule.gathers:
            return self._admission.round().gathered == 0
        return all(self._settled(worker) for worker in range(self._control.workers))

    def _settled(self, worker: int) -> bool:
        return all(shard.applied(worker) >= shard.counters.pushed[worker] for shard in self._shards)

    def _hand_in(self, push: Push) -> None:
        """Each shard's part when it is there: its server applies that while the next is on its way."""
        self._fill(push.worker, push)
        for number in self.section.order:
            self._arrive(number)
            self._shards[number].counters.pushed[push.worker] = push.seq
            if self._carrier is not None:
                self._control.event.wake()
        self._control.event.wake()

    def _await_round(self, worker: int) -> Steps[None]:
        asked, what = self._now(), f"worker {worker} waits for the servers to apply a round"
        yield Wait(lambda: not self._admission.round().closed, self._deadline_s, lambda: what)
        self._waited(worker, asked)
