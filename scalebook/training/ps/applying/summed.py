"""A round's gradients, added up as they come, where one process plays all workers."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from scalebook.training.ps.applying.plan import SectionPlan
from scalebook.training.ps.applying.slots import Average, Slots
from scalebook.training.ps.memory.region import Control
from scalebook.training.ps.optimizer.hyper import Groups, decode
from scalebook.training.ps.trace import Origin


class SummedSlots(Slots):
    """Slots that share the memory of one: the sum of what the round has so far.

    Of a slot of its own each gradient has the counters alone. It is added as soon as it is registered, while it is in
    the cache, in the order in which `Slots.average` adds: the sum is the same to the last bit. Nobody else can die in
    between, so nothing need be kept of it.
    """

    def __init__(self, plan: SectionPlan, memory: Tensor, control: Control, section: int) -> None:
        super().__init__(plan, memory, control, section)
        self._sum, self._present = self._gradients[0], [False] * len(self._gradients[0])
        self._written: tuple[list[Tensor | None], Groups] = ([], [])  # of the slot that was written last
        self._text = b""  # hyper-parameters of the gradient that was gathered last

    @override
    def write(
        self, slot: int, origins: list[Origin], gradients: list[Tensor | None], groups: Groups, valid: bool
    ) -> None:
        """Until `gather` the gradients are only looked at."""
        self._note(slot, origins, valid)
        self._written = gradients, groups

    @override
    @torch.no_grad()
    def gather(self, slot: int, first: bool) -> None:
        if first:
            self._present = [False] * len(self._present)
        (gradients, groups), self._written = self._written, ([], [])
        self._text = self._encode(groups)
        if not self._counters.valid[slot]:
            return
        for place, gradient in enumerate(gradients):
            if gradient is None:
                continue
            if self._present[place]:
                self._sum[place].add_(gradient)
            else:
                self._sum[place].copy_(gradient)
                self._present[place] = True

    @override
    def average(self, slots: Sequence[int], places: Sequence[int], is_sum: bool = False) -> Average:
        """As it says there; in place of the sum, so once for each parameter and round."""
        count = 1 if is_sum else sum(self._counters.valid[slot] for slot in slots)
        gradients: list[Tensor | None] = [None] * len(self._sum)
        for place in places:
            if self._present[place]:
                gradients[place] = self._sum[place].div_(count) if count > 1 else self._sum[place]
        return Average(gradients, self._groups_now())

    def _groups_now(self) -> Groups:
        if self._text != self._decoded[0]:
            self._decoded = (self._text, decode(self._text))
        return self._decoded[1]

    def kept(self) -> dict[str, Any]:
        """What the round has so far; the sum lies in the run's memory: write it before anything else happens."""
        return {"present": list(self._present), "text": self._text, "sum": self.memory(0)}

    def load(self, kept: Mapping[str, Any]) -> None:
        """Go on where `kept` was; the counters are there again."""
        self._present, self._text = list(kept["present"]), kept["text"]
        self.memory(0).copy_(kept["sum"])
