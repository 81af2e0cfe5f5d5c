"""The contract of a host: a worker's way to the shards of one optimizer."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from scalebook.training.ps.applying.section import Section
from scalebook.training.ps.applying.shard import Newest
from scalebook.training.ps.clock import Steps
from scalebook.training.ps.coordination.admission import Verdict
from scalebook.training.ps.memory.region import PUSHED, ROW, WAIT
from scalebook.training.ps.optimizer.hyper import Groups
from scalebook.training.ps.trace import Origin


class Push(NamedTuple):
    """A gradient on its way: the worker's `seq`-th push, computed from `bases` (one for each shard), pulled at (s).

    `valid` False: the gradient is of no use (infinite under a loss scaler), and the worker only takes part.
    """

    worker: int
    seq: int
    bases: Sequence[Newest]
    pulled: float
    gradients: list[Tensor | None]
    groups: Groups
    valid: bool
    nbytes: int  # of the gradients

    def origin(self, shard: int) -> Origin:
        """Where the gradient comes from, as one shard sees it."""
        base = self.bases[shard]
        return Origin(self.worker, self.seq, base.version, base.buffer, self.pulled)


class Outcome(NamedTuple):
    """What became of a push: let in (applied now, with its round, or by the server), dropped, or too late for all."""

    verdict: Verdict
    staleness: int


class Host(ABC):
    """One worker's way to the shards of one optimizer. Every wait ends at the deadline with a TimeoutError.

    A push is applied at most once, whoever dies. It returns when the gradient's memory may be used again. What may have
    to wait is steps, to be played by the run's clock (`ps/clock`).
    """

    def __init__(self, section: Section) -> None:
        self.section = section
        self._control, self._admission, self._shards = section.control, section.admission, section.shards
        self._rule, self._deadline_s = section.admission.rule, section.deadline_s
        self._now = section.control.clock.now
        self._sizes = [field.nbytes for field in section.plan.gradients.fields]
        self._size = sum(self._sizes)

    @abstractmethod
    def push(self, push: Push) -> Steps[Outcome]:
        """Hand in a gradient; whether it was applied, dropped, or came after the end. TimeoutError at the deadline."""

    @abstractmethod
    def settle(self, worker: int) -> Steps[None]:
        """Wait until the last push of `worker` has been applied, where that is not so anyway."""

    @abstractmethod
    def await_turn(self, worker: int) -> Steps[None]:
        """Wait until the rule lets `worker` begin its next gradient."""

    @abstractmethod
    def help(self) -> None:
        """Apply a round that is complete because another worker finished, rests or died; nothing to do for servers."""

    @abstractmethod
    def complete(self) -> Steps[None]:
        """When all have finished: return when everything that was pushed has been applied."""

    @abstractmethod
    def _await_round(self, worker: int) -> Steps[None]:
        """Return when a closed round may have been applied, by this worker or by others."""

    def pull(self, worker: int) -> list[Newest]:
        """Hold the newest version of each shard; it stays as it is until the next pull."""
        return [shard.hold(worker) for shard in self._shards]

    def nbytes(self, gradients: Sequence[Tensor | None]) -> int:
        """Of the gradients that are there."""
        absent = sum([size for size, gradient in zip(self._sizes, gradients, strict=True) if gradient is None])
        return self._size - absent

    def _contribute(self, push: Push) -> Steps[Outcome]:
        """For a rule that gathers: lay the gradient into a slot and make it part of the round."""
        rounds, base = self.section.rounds, min(base.version for base in push.bases)
        slot = rounds.slot(push.worker)
        self._fill(slot, push)
        while (verdict := rounds.register(push.worker, slot, base)) is None:
            yield from self._await_round(push.worker)
        outcome = Outcome(verdict, self._admission.version() - base)
        self.help()
        return outcome

    def _fill(self, slot: int, push: Push) -> None:
        origins = [push.origin(number) for number in range(len(self._shards))]
        self.section.slots.write(slot, origins, push.gradients, push.groups, push.valid)
        self._handed_in(push)

    def _handed_in(self, push: Push) -> None:
        """Count the bytes of its gradients: once, wherever they were handed over."""
        self._control.counters[push.worker * ROW + PUSHED] += push.nbytes

    def _waited(self, worker: int, since: float) -> None:
        self._control.seconds[worker * ROW + WAIT] += self._now() - since

    def _staleness(self, push: Push) -> int:
        """The largest over the shards, as it is now."""
        pairs = zip(self._shards, push.bases, strict=True)
        return max(shard.version - base.version for shard, base in pairs)
