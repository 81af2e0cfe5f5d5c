"""How good a value is, from 0 (the worst tenth of values) to 1 (the best); charts colour by it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalebook.training.search.map.scales import round_steps

STOPS = ("#f3e7c9", "#d5dfb5", "#9cc8a6", "#5aa8a0", "#2a838c", "#126172", "#0b3d55")
"""Colours of the shades 0 to 1 on a light ground: lightness falls all the way, which the colour-blind see too."""
FEW = 10  # of so few values none is left out of the range
WORST = 0.9  # the quantile of badness from which all look alike: one trial close to divergence must not hide the rest
LOG_RATIO = 8.0
TICK_ROOM = 0.12
"""Between two ticks, as a share of the axis: room for a label on the shortest one."""


@dataclass(frozen=True)
class Shades:
    """A range of values. `clipped`: some values are worse than `worst`, and look like it."""

    best: float
    worst: float
    log: bool
    clipped: bool

    def of(self, values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """The shade of each, within 0 to 1."""
        inner = self._inner(np.asarray(values, dtype=np.float64))
        best, worst = (float(self._inner(np.asarray(end))) for end in (self.best, self.worst))
        if best == worst:
            return np.ones_like(inner)
        return np.clip((inner - worst) / (best - worst), 0.0, 1.0)

    def ticks(self) -> list[tuple[float, str]]:
        """Shades and the values there, the best last: both ends, and round values with room between them."""
        if self.best == self.worst:
            return [(1.0, f"{self.best:.3g}")]
        small, large = sorted((self.best, self.worst))
        decades = range(math.floor(math.log10(small)), math.ceil(math.log10(large)) + 1) if self.log else ()
        between = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)] or round_steps(small, large)
        inside = [value for value in between if small < value < large]
        labels = {0.0: f"{self.worst:.3g}{' or worse' if self.clipped else ''}", 1.0: f"{self.best:.3g}"}
        for value, shade in zip(inside, self.of(inside), strict=True):
            if all(abs(shade - other) >= TICK_ROOM for other in labels):
                labels[float(shade)] = f"{value:.3g}"
        return sorted(labels.items())

    def _inner(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if not self.log:
            return values
        return np.asarray(np.log(np.maximum(values, min(self.best, self.worst) * 1e-3)), dtype=np.float64)


def shades(values: Sequence[float], lower: bool) -> Shades | None:
    """The shades of the finite `values`, None without any; `lower`: smaller is better."""
    finite = np.asarray([value for value in values if np.isfinite(value)], dtype=np.float64)
    if not len(finite):
        return None
    ordered = np.sort(finite if lower else -finite)
    worst = float(ordered[-1] if len(ordered) < FEW else np.quantile(ordered, WORST))
    best, clipped = float(ordered[0]), bool(ordered[-1] > worst)
    if not lower:
        best, worst = -best, -worst
    small, large = min(best, worst), max(best, worst)
    return Shades(best, worst, small > 0 and large / small >= LOG_RATIO, clipped)


def colour_at(position: float, stops: Sequence[str] = STOPS) -> str:
    """One colour of the scale from 0 to 1, between its stops too."""
    inner = min(max(position, 0.0), 1.0) * (len(stops) - 1)
    left = min(int(inner), len(stops) - 2)
    share = inner - left
    parts = [
        round(int(stops[left][i : i + 2], 16) * (1 - share) + int(stops[left + 1][i : i + 2], 16) * share)
        for i in (1, 3, 5)
    ]
    return "#" + "".join(f"{part:02x}" for part in parts)
