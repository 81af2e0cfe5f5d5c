"""A worker's copy of the parameters: on a CPU the newest version itself, elsewhere a copy of it."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from training.ps.layout import lay_out
from training.ps.section import Section
from training.ps.shard import Newest


class Replica:
    """The parameters of one optimizer in one worker; `take` makes them those of held versions.

    `lent`: on a CPU the parameters are views into the versions that this worker holds, which nobody changes, so that
    taking one copies nothing; the parameters change their storage with it, and must not be written to. Otherwise (on a
    GPU, and when the worker itself steps between two pulls) they lie in memory of their own, and a take is a copy. A
    GPU copies by DMA, since what lies on the host is page-locked (`region.pin`).
    """

    def __init__(self, section: Section, parameters: Sequence[Parameter], own_steps: bool) -> None:
        self.parameters = list(parameters)
        self._shards = section.shards
        self._on_cpu = all(p.device.type == "cpu" for p in self.parameters)
        self.lent = not own_steps and self._on_cpu
        self._staging = self._stage()
        self._own = self._allocate()
        self._private = True
        self._bind(self._own)

    def take(self, versions: Sequence[Newest]) -> None:
        """Become these versions, one for each shard, which the worker holds."""
        for shard, newest in zip(self._shards, versions, strict=True):
            views = shard.views[newest.slab]
            for place, view in zip(shard.plan.parameters, views, strict=True):
                if self.lent:
                    self.parameters[place].data = view
                else:
                    self._own[place].copy_(view, non_blocking=True)  # the version is held until the next take
        if not self.lent and self._private:
            self._bind(self._own)
        self._private = not self.lent

    def privatise(self) -> None:
        """Give the parameters memory of their own until the next take, so that they may be written to."""
        if not self._private:
            self._bind([parameter.data.clone() for parameter in self.parameters])
            self._private = True

    def detach(self) -> None:
        """Give every parameter a storage of its own for good."""
        for parameter in self.parameters:
            parameter.data = parameter.data.clone()
        self._private = True

    def gradients(self) -> list[Tensor | None]:
        """The gradients, on the CPU, None where there is none."""
        if self._on_cpu:
            return [parameter.grad for parameter in self.parameters]
        for parameter, landing in zip(self.parameters, self._staging, strict=True):
            if parameter.grad is not None:
                landing.copy_(parameter.grad, non_blocking=True)
        torch.cuda.synchronize(self.parameters[0].device)
        pairs = zip(self.parameters, self._staging, strict=True)
        return [None if p.grad is None else landing for p, landing in pairs]

    def _stage(self) -> list[Tensor]:
        """Page-locked memory where gradients of a GPU land."""
        if self._on_cpu:
            return []
        layout = lay_out([(str(i), p.detach()) for i, p in enumerate(self.parameters)])
        return layout.views(torch.zeros(layout.nbytes, dtype=torch.uint8, pin_memory=True))

    def _allocate(self) -> list[Tensor]:
        """Memory of the replica's own, filled with the parameters' values; the parameters themselves where lent."""
        if self.lent:
            return [parameter.data for parameter in self.parameters]
        layout = lay_out([(str(i), p.detach()) for i, p in enumerate(self.parameters)])
        flat = torch.zeros(layout.nbytes, dtype=torch.uint8, device=self.parameters[0].device)
        views = layout.views(flat)
        for view, parameter in zip(views, self.parameters, strict=True):
            view.copy_(parameter.detach())
        return views

    def _bind(self, tensors: Sequence[Tensor]) -> None:
        for parameter, tensor in zip(self.parameters, tensors, strict=True):
            parameter.data = tensor
