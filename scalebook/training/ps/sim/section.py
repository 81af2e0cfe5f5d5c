"""One optimizer of simulated workers: what memory holds of it, who may begin, and a round's gradients as one sum."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from scalebook.training.ps.applying.plan import Capacity, SectionPlan
from scalebook.training.ps.applying.section import Section
from scalebook.training.ps.applying.slots import Average, Slots
from scalebook.training.ps.coordination.admission import Admission
from scalebook.training.ps.memory.region import Control
from scalebook.training.ps.optimizer.hyper import Groups, decode
from scalebook.training.ps.policy.rules import Rule, Sync, View
from scalebook.training.ps.policy.settings import Settings
from scalebook.training.ps.trace import Origin


def may_release(settings: Settings) -> bool:
    """Whether a worker that leaves gives up its version: workers then hold few distinct ones."""
    kind = type(settings.rule)
    as_sync = kind.may_begin is Rule.may_begin and kind.accepts is Rule.accepts and kind.needed is Sync.needed
    return settings.rule.synchronous and as_sync and settings.local.n_fetch == 1


class SimulatedCapacity(Capacity):
    """Whoever gave a gradient to a synchronous update has pulled it before anything else happens: older versions are
    held by those only for whom it did not wait, and the first one by those who wait for the end of the warm-up."""

    @override
    def buffers(self, settings: Settings, workers: int) -> int:
        every = super().buffers(settings, workers)
        if not may_release(settings):
            return every
        return min(every, 2 + workers - settings.most(workers) + (1 if settings.warmup_updates else 0))

    @override
    def slots(self, settings: Settings, workers: int, has_tables: bool) -> int:
        """One, for a round's sum; sparse gradients are not summed as they come."""
        slots = super().slots(settings, workers, has_tables)
        return slots if has_tables else min(1, slots)


class SimulatedAdmission(Admission):
    """Of many workers in one process, who ask again after each event: what they see is kept until something happens."""

    def __init__(self, control: Control, section: int, deadline_s: float) -> None:
        super().__init__(control, section, deadline_s)
        own = type(self.rule).may_begin is not Rule.may_begin
        self._tick_tells = self.may_wait and (own or not self.rule.synchronous)
        self._seen: tuple[int, View] | None = None  # after how many wakes, and what was to be seen

    @override
    def tick(self, worker: int) -> None:
        """Nobody's turn follows from that where a worker that has contributed waits for the update."""
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


class SimulatedSection(Section):
    """A dense round is one sum; nothing here takes real time that would be worth measuring."""

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
    """Slots that share one sum: of what the round has so far.

    Of a slot of its own each gradient has the counters alone. It is added as soon as it is registered, while it is in
    the cache, in the order in which `Slots.average` adds: the sum is the same to the last bit. Nobody else can die in
    between, so nothing need be kept of it.

    `takes_over`: a gradient is nobody's any more once it is pushed, so the first of a round becomes the sum itself;
    else it is copied into a slot's memory.
    """

    def __init__(self, plan: SectionPlan, memory: Tensor, control: Control, section: int, takes_over: bool) -> None:
        super().__init__(plan, memory, control, section)
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
        """Until `gather` the gradients are only looked at."""
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
        """As it says there; in place of the sum, so once for each parameter and round."""
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
