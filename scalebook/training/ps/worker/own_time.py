"""How long a worker needs for itself from one push to the next: for a gradient, and for what surrounds it."""

from typing import Final

from scalebook.training.ps.applying.section import Section
from scalebook.training.ps.memory.region import ROW, WAIT

WARM_UP: Final = 20
"""A worker's first gradients, which take up to ten times as long, are not noted."""


class OwnTime:
    """Notes, in `Control.own`, what passes between the ends of two pushes for the first optimizer, but for waiting and
    for applying gradients, its own or others'.

    Not where the worker was interrupted in between (a validation, a checkpoint, a rest).
    """

    def __init__(self, worker: int, section: Section) -> None:
        self._control, self._worker, self._shards = section.control, worker, section.shards
        self._is_noted = section.number == 0 and section.times_workers
        self._last: float | None = None
        self._pushes = 0

    def pushed(self) -> None:
        """A push is over, its pull too."""
        if not self._is_noted:
            return
        control, last = self._control, self._last
        others = control.seconds[self._worker * ROW + WAIT] + sum(shard.served_s for shard in self._shards)
        self._last = control.clock.now() - others
        self._pushes += 1
        if last is not None and self._pushes > WARM_UP:
            control.own[self._worker].add(self._last - last)

    def interrupted(self) -> None:
        """What comes before the next push is more than a gradient."""
        self._last = None
