"""What a learning-rate range test says: the loss against a rate that grows from update to update."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

SMOOTHED_OVER: Final = 25
"""A point is smoothed over 1/25 of all points to each side."""

LEAST_POINTS: Final = 10
SURE: Final = 5.0
"""Standard errors of a smoothed point by which the lowest must be below the beginning, for the loss to have fallen."""

TOLERATED: Final = 0.1
"""Share of the whole fall by which the loss may be above its lowest where the rate is still called good."""
BEGUN: Final = 0.2
"""Share of the whole fall after which the loss is said to fall. Before that, noise can be steeper than the curve."""


@dataclass(frozen=True)
class Suggestion:
    """Learning rates; None where the curve does not tell."""

    steepest: float | None
    """Where the loss falls fastest by the logarithm of the rate: a rate to train with."""
    largest: float | None
    """The largest that still trains; the loss rises beyond. None where no rate of the test was too large."""
    edge: Literal["", "lowest", "highest"] = ""
    """Which end of the range the steepest fall or the lowest loss is at, so that a better rate may be beyond it."""

    def sentence(self, curve: "RateCurve") -> str:
        """One line for people."""
        if self.steepest is None:
            low = (
                "Test lower rates, or with more updates."
                if curve.diverged
                else "Test higher rates, or with more updates."
            )
            return (
                f"no suggestion: the loss does not fall between {curve.rates[0]:.2g} and {curve.rates[-1]:.2g}. {low}"
            )
        beyond = (
            f"the largest that trains is {self.largest:.2g}"
            if self.largest is not None
            else f"it trains up to {curve.rates[-1]:.2g}, the highest tested"
        )
        edge = ""
        if self.edge:
            end = curve.rates[0] if self.edge == "lowest" else curve.rates[-1]
            beyond += f". The best rate is at an edge of the range, near {end:.2g}, the {self.edge} tested"
            edge = f": test {'lower' if self.edge == 'lowest' else 'higher'} rates"
        return f"learning rate {self.steepest:.2g}, where the loss falls fastest; {beyond}{edge}"


@dataclass(frozen=True)
class RateCurve:
    """`losses[i]` is the training loss after an update with `rates[i]`; rates grow, losses are finite.

    `diverged`: the test ended because the loss exploded, before the highest rate.
    """

    rates: list[float]
    losses: list[float]
    diverged: bool

    def smoothed(self) -> list[float]:
        """The mean over the neighbours of each point, as many on each side, fewer towards the ends."""
        count, reach = len(self.losses), self._reach
        means = []
        for i in range(count):
            side = min(reach, i, count - 1 - i)
            part = self.losses[i - side : i + side + 1]
            means.append(sum(part) / len(part))
        return means

    def suggestion(self) -> Suggestion:
        """The steepest fall, and the end of the valley (Smith 2017, section 3.3, of the loss instead of accuracy)."""
        if len(self.losses) < LEAST_POINTS:
            return Suggestion(None, None)
        smooth, reach = self.smoothed(), self._reach
        start = sum(self.losses[: 2 * reach + 1]) / (2 * reach + 1)
        lowest = min(range(reach, len(smooth) - reach), key=smooth.__getitem__)  # the ends are smoothed over less
        fall = start - smooth[lowest]
        if fall <= SURE * self._standard_error(smooth):
            return Suggestion(None, None)
        above = [i for i in range(reach, lowest) if smooth[i] > start - BEGUN * fall]
        first = max(above, default=reach)
        place = min(range(first, max(first, lowest) + 1), key=lambda i: self._slope(smooth, i))
        good = [i for i, loss in enumerate(smooth) if i >= lowest and loss <= smooth[lowest] + TOLERATED * fall]
        rises = self.diverged or good[-1] < len(smooth) - 1 - reach
        falls_to_the_end = not rises and lowest >= len(smooth) - 1 - 2 * reach
        edge: Literal["", "lowest", "highest"] = (
            "lowest" if place <= 2 * reach else "highest" if falls_to_the_end else ""
        )
        return Suggestion(self.rates[place], self.rates[_first_gap(good)] if rises else None, edge)

    def as_dict(self) -> dict[str, Any]:
        """The content of `rates.json`."""
        suggestion = self.suggestion()
        return {
            "rates": self.rates,
            "losses": self.losses,
            "diverged": self.diverged,
            "steepest": suggestion.steepest,
            "largest": suggestion.largest,
        }

    @property
    def _reach(self) -> int:
        return max(1, len(self.losses) // SMOOTHED_OVER)

    def _standard_error(self, smooth: Sequence[float]) -> float:
        """The standard error of a smoothed point, from the scatter around the curve in its first half, before anything
        explodes."""
        half = len(smooth) // 2
        scatter = [(a - b) ** 2 for a, b in zip(self.losses[:half], smooth[:half], strict=True)]
        return math.sqrt(sum(scatter) / max(1, half - 1) / (2 * self._reach + 1))

    def _slope(self, smooth: Sequence[float], i: int) -> float:
        """The slope of a line through the point's neighbours, against log10 of the rate."""
        part = range(max(0, i - self._reach), min(len(smooth), i + self._reach + 1))
        x = [math.log10(self.rates[k]) for k in part]
        y = [smooth[k] for k in part]
        mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
        above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
        below = sum((a - mean_x) ** 2 for a in x)
        return above / below if below > 0 else 0.0


def _first_gap(rising: Sequence[int]) -> int:
    """The last of the leading consecutive integers."""
    last = rising[0]
    for index in rising[1:]:
        if index != last + 1:
            break
        last = index
    return last
