"""Shards without processes of their own: whoever pushes applies, one shard after the other."""

from scalebook.training.ps.applying.hosts.base import Host, Outcome, Push
from scalebook.training.ps.applying.section import Section
from scalebook.training.ps.clock import Steps, Wait
from scalebook.training.ps.coordination.admission import Verdict


class InlineHost(Host):
    """No process in between: one pass over the parameters for each update, and no copy for SGD."""

    def __init__(self, section: Section) -> None:
        super().__init__(section)
        self._places = [shard.plan.parameters for shard in section.shards]
        self._gives_base = self._control.settings.gives_base

    def push(self, push: Push) -> Steps[Outcome]:
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

    def settle(self, worker: int) -> Steps[None]:
        """Nothing to wait for: a push returns after it has been applied."""
        yield from ()

    def await_turn(self, worker: int) -> Steps[None]:
        asked = self._now()
        if self._rule.gathers:
            what = f"worker {worker} waits in rule {self._rule.name}"
            yield Wait(lambda: self._helped(worker), self._deadline_s, lambda: what)
        else:
            yield from self._admission.await_turn(worker)
        self._waited(worker, asked)

    def help(self) -> None:
        if self._rule.gathers and self.section.rounds.close():
            self.section.rounds.commit()

    def _contributed(self) -> None:
        self.help()

    def complete(self) -> Steps[None]:
        self.help()
        yield from ()

    def _apply(self, push: Push) -> None:
        """A shard's part when it is there, while the next is on its way."""
        giver = push.worker if self._gives_base else None
        landed = push.gradients if self._carrier is None else self._carrier.landed(push.gradients)
        for number in self.section.order:
            shard = self._shards[number]
            self._arrive(number)
            asked = self._now()
            with shard.applying:
                self._waited(push.worker, asked)
                gradients = [landed[place] for place in self._places[number]]
                with shard.serving():
                    shard.apply([push.origin(number)], gradients, push.groups, giver)
        self._handed_in(push)

    def _await_round(self, worker: int) -> Steps[None]:
        self.section.rounds.commit()
        yield from ()

    def _helped(self, worker: int) -> bool:
        """Whether the worker's turn has come; applies a round that is complete first."""
        self.help()
        return self._admission.has_turn(worker)
