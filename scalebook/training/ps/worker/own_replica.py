"""The replica of a worker that makes steps by itself (`local:`): it knows from where they have led it away."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from scalebook.training.ps.applying.section import Section
from scalebook.training.ps.applying.shard import Newest
from scalebook.training.ps.worker.replica import Replica


class OwnReplica(Replica):
    """In memory of its own. Its base are the versions held: those taken last, or `look`ed at since; where a codec
    carries them, what was decoded."""

    def __init__(self, section: Section, parameters: Sequence[Parameter], worker: int) -> None:
        super().__init__(section, parameters, own=True, worker=worker)
        self._aside: list[Tensor] = []  # its own values, while it shows others

    def look(self, versions: Sequence[Newest]) -> Sequence[int]:
        """Have these versions as the base without becoming them; returns bytes as `take`."""
        self._held = list(versions)
        if self._pulls is not None:
            self.arrive()  # frames are decoded to where copies begin
            return [
                self._pulls.take(number, shard.views[newest.buffer], self.frozen)
                for number, (shard, newest) in enumerate(zip(self._shards, versions, strict=True))
            ]
        return self._sizes if not self.frozen else [self._bytes_of(shard, self.frozen) for shard in self._shards]

    def stepped(self) -> None:
        """The worker has made a step of its own."""
        self._stepped = True
        self._watch()

    @torch.no_grad()
    def gone(self) -> list[Tensor | None]:
        """How far it is from the base back: base - parameters, on the CPU; None for what is this worker's alone."""
        return [
            None if place in self.frozen else self._base(place) - parameter.detach().to("cpu")
            for place, parameter in enumerate(self.parameters)
        ]

    @torch.no_grad()
    def moved(self) -> float:
        """||parameters - base|| / ||base||, Euclidean, over all that are shared; infinite where the base is 0."""
        pairs = [(gone, self._base(place)) for place, gone in enumerate(self.gone()) if gone is not None]
        way, size = (torch.stack([one.float().norm() for one in of]).norm() for of in zip(*pairs, strict=True))
        return float(way / size) if size else math.inf if way else 0.0

    @torch.no_grad()
    def move(self, by: Sequence[Tensor | None]) -> None:
        """Add these to the parameters."""
        for parameter, add in zip(self.parameters, by, strict=True):
            if add is not None:
                parameter.add_(add.to(parameter.device))
        self.stepped()

    @torch.no_grad()
    def show(self, versions: Sequence[Newest]) -> None:
        """Until `show_own`, have the values of these versions, which nobody writes to while this copies them."""
        self.arrive()
        if not self._aside:
            self._aside = [parameter.detach().clone() for parameter in self.parameters]
        for shard, newest in zip(self._shards, versions, strict=True):
            for place, value in zip(shard.plan.parameters, shard.views[newest.buffer], strict=True):
                if place not in self.frozen:
                    self.parameters[place].copy_(value)
        self.stepped()  # nothing to compare them with

    @torch.no_grad()
    def show_own(self) -> None:
        """Undo `show`, if it was called."""
        if self._aside:
            for parameter, own in zip(self.parameters, self._aside, strict=True):
                parameter.copy_(own)
            self._aside = []
            self._watch()

    def _base(self, place: int) -> Tensor:
        return self._published(place) if self._pulls is None else self._pulls.known[place]
