"""How long something took, each time: counts by classes of time, in memory that processes share."""

import math
from typing import Final

from scalebook.training.ps.policy.took import Took, took

PER_OCTAVE: Final = 16
"""Classes between a time and twice that: each is 4 % wide."""
SHORTEST: Final = -24
"""Binary logarithm of the shortest, in seconds: 60 ns."""
CLASSES: Final = 40 * PER_OCTAVE
"""Up to 65,536 s; what is shorter or longer counts as the first or the last."""
SUMS: Final = 2


class Spread:
    """`counts` has CLASSES int64, `sums` SUMS float64: the seconds, and their squares. Written by one process at a
    time, read by all."""

    def __init__(self, counts: memoryview, sums: "memoryview[float]") -> None:
        self._counts, self._sums = counts, sums

    def add(self, seconds: float, times: int = 1) -> None:
        """It took so long, so many times."""
        seconds = max(seconds, 2.0**SHORTEST)
        place = int((math.log2(seconds) - SHORTEST) * PER_OCTAVE)
        self._counts[min(place, CLASSES - 1)] += times
        self._sums[0] += times * seconds
        self._sums[1] += times * seconds * seconds

    def took(self) -> Took | None:
        """All that was added; None before the first."""
        return took(
            [(_middle(place), count) for place, count in enumerate(self._counts.tolist()) if count], *self._sums
        )


def _middle(place: int) -> float:
    return float(2.0 ** ((place + 0.5) / PER_OCTAVE + SHORTEST))
