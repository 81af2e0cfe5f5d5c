"""How good a value is, from 0 (the worst tenth of values) to 1 (the best); charts colour by it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STOPS = ("#f3e7c9", "#d5dfb5", "#9cc8a6", "#5aa8a0", "#2a838c", "#126172", "#0b3d55")
"""Colours of the shades 0 to 1 on a light ground: lightness falls all the way, which the colour-blind see too."""
FEW = 10  # of so few values none is left out of the range
WORST = 0.9  # the quantile of badness from which all look alike: one trial close to divergence must not hide the rest
LOG_RATIO = 8.0


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

    def ticks(self, count: int = 5) -> list[tuple[float, str]]:
        """Shades and the values there, the best last."""
        if self.best == self.worst:
            return [(1.0, f"{self.best:.3g}")]
        best, worst = (float(self._inner(np.asarray(end))) for end in (self.best, self.worst))
        shades = np.linspace(0.0, 1.0, count)
        inner = worst + shades * (best - worst)
        values = np.exp(inner) if self.log else inner
        labels = [f"{value:.3g}" for value in values]
        if self.clipped:
            labels[0] = f"{labels[0]} or worse"
        return [(float(shade), label) for shade, label in zip(shades, labels, strict=True)]

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
