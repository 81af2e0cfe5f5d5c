"""A round's gradients, added up as they come, where one process plays all workers."""

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from scalebook.training.ps.applying.plan import SectionPlan
from scalebook.training.ps.applying.slots import Average, Slots
from scalebook.training.ps.memory.region import Control
from scalebook.training.ps.optimizer.hyper import Groups, decode
from scalebook.training.ps.trace import Origin


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
