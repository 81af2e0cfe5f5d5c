"""How gradients come from the device that computes them to the host that applies them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from scalebook.training.ps.applying.plan import SectionPlan
from scalebook.training.ps.memory.device import Device, Image, Mark, Registered, landing
from scalebook.training.ps.memory.layout import retyped


class Carrier:
    """One worker's, for one optimizer: a copy for each shard, of which each may be used as soon as it is there.

    A shard's gradients are gathered on the device before, which takes as much memory there. They go straight to a slot,
    or else to memory of their own.
    """

    def __init__(
        self,
        plan: SectionPlan,
        device: Device,
        parameters: Sequence[Tensor],
        lands: bool = True,
        dtype: torch.dtype | None = None,
    ) -> None:
        """`lands`: take the memory of their own at once. `dtype`: to which the device rounds them before the copy, for
        no slot."""
        self._plan, self._device = plan, device
        self._layout = plan.gradients if dtype is None else retyped(plan.gradients, dtype)
        self._images = [
            Image(
                device, [self._layout.fields[i] for i in shard.parameters],
                [parameters[i].device for i in shard.parameters],
            )
            for shard in plan.shards
        ]  # fmt: skip
        self._marks: list[Mark] = [device.record()] * len(self._images)
        self._landing: Tensor | None = None
        self._registered: Registered | None = None
        if lands:
            self._land()

    @torch.no_grad()
    def set_out(self, gradients: Sequence[Tensor | None], slot: Tensor | None, order: Sequence[int]) -> None:
        """Begin to copy the shards' gradients, in this order, to `slot` (uint8), or where they land otherwise. When all
        that was copied before has arrived: on the device it lies in the same memory, and here perhaps too."""
        target = self._land() if slot is None else slot
        for number in order:
            self.arrive(number)
        for number in order:
            places, image = self._plan.shards[number].parameters, self._images[number]
            pairs = [
                (v, g) for v, place in zip(image.views, places, strict=True) if (g := gradients[place]) is not None
            ]
            if pairs:
                torch._foreach_copy_([view for view, _ in pairs], [gradient for _, gradient in pairs])
                image.down(target)
            self._marks[number] = self._device.record()

    def arrive(self, number: int) -> None:
        """Wait until a shard's gradients are there."""
        self._device.wait(self._marks[number])

    def landed(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Those that `set_out` was given, as they land; each shard's when it has arrived, until the next `set_out`."""
        views = self._layout.views(self._land())
        return [None if gradient is None else view for gradient, view in zip(gradients, views, strict=True)]

    def bring(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """All of them, on the host; until the next call."""
        every = range(len(self._images))
        self.set_out(gradients, None, every)
        for number in every:
            self.arrive(number)
        return self.landed(gradients)

    def release(self) -> None:
        """At the end, when all has arrived: take back that memory is registered."""
        for number in range(len(self._images)):
            self.arrive(number)
        if self._registered is not None:
            self._registered.release()

    def _land(self) -> Tensor:
        if self._landing is None:
            self._landing, self._registered = landing(self._layout.nbytes, self._device)
        return self._landing
