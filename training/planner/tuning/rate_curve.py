"""What a learning-rate range test says: the loss against a rate that grows from update to update."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

SMOOTHED_OVER: Final = 25
"""A point is smoothed over 1/25 of all points to each side."""
LEAST_REACH: Final = 4
"""Points to each side at least. An asynchronous worker sees only some of the updates, and noise of few points is as
large as the fall."""

LEAST_POINTS: Final = 10
SURE: Final = 4.0
"""Standard errors that the fall must exceed for the loss to have fallen. Noise alone does so in up to 3 % of tests."""
STEPS: Final = 30
"""Parts of the range at whose ends the fall may begin or end."""
AT_EDGE: Final = 1 / 8
"""Share of the range that counts as its lower edge."""

TOLERATED: Final = 0.1
"""Share of the whole fall by which the loss may be above its lowest where the rate is still called good."""


@dataclass(frozen=True)
class Suggestion:
    """Learning rates; None where the curve does not tell."""

    steepest: float | None
    """Where the loss falls fastest by the logarithm of the rate: a rate to train with. None at the lower edge of the
    range, because the loss may fall faster below it."""
    largest: float | None
    """The largest that still trains; the loss rises beyond. None where no rate of the test was too large."""
    edge: Literal["", "lowest", "highest"] = ""
    """Which end of the range the steepest fall or the lowest loss is at, so that a better rate may be beyond it."""

    def sentence(self, curve: "RateCurve") -> str:
        """One line for people."""
        if self.edge == "lowest":
            return (
                f"no suggestion: the loss falls fastest at the edge of the range, near {curve.rates[0]:.2g}, the "
                "lowest rate tested. Test lower rates."
            )
        if self.steepest is None:
            low = (
                "Test lower rates, or use more updates."
                if curve.diverged
                else "Test higher rates, or use more updates."
            )
            return (
                f"no suggestion: the loss does not fall between {curve.rates[0]:.2g} and {curve.rates[-1]:.2g}. {low}"
            )
        beyond = (
            f"the largest rate that still trains is {self.largest:.2g}"
            if self.largest is not None
            else f"training still works at {curve.rates[-1]:.2g}, the highest rate tested"
        )
        if self.edge:
            beyond += (
                f". The best rate is at an edge of the range, near {curve.rates[-1]:.2g}, the highest rate tested. "
                "Test higher rates"
            )
        return f"learning rate {self.steepest:.2g}, where the loss falls fastest; {beyond}"


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
        """The middle of the fall, and the end of the valley (Smith 2017, section 3.3, of the loss instead of
        accuracy)."""
        if len(self.losses) < LEAST_POINTS:
            return Suggestion(None, None)
        smooth, reach = self.smoothed(), self._reach
        lowest = min(range(reach, len(smooth) - reach), key=smooth.__getitem__)  # the ends are smoothed over less
        middle, fall, error = self._fall(lowest + reach + 1)
        if fall <= SURE * error:
            return Suggestion(None, None)
        places = [math.log10(rate) for rate in self.rates]
        place = min(range(lowest + 1), key=lambda i: abs(places[i] - middle))
        good = [i for i, loss in enumerate(smooth) if i >= lowest and loss <= smooth[lowest] + TOLERATED * fall]
        rises = self.diverged or good[-1] < len(smooth) - 1 - reach
        falls_at_once = middle - places[0] < AT_EDGE * (places[-1] - places[0])
        falls_to_the_end = not rises and lowest >= len(smooth) - 1 - 2 * reach
        edge: Literal["", "lowest", "highest"] = "lowest" if falls_at_once else "highest" if falls_to_the_end else ""
        steepest = None if edge == "lowest" else self.rates[place]
        return Suggestion(steepest, self.rates[_first_gap(good)] if rises else None, edge)

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
        return max(LEAST_REACH, len(self.losses) // SMOOTHED_OVER)

    def _fall(self, count: int) -> tuple[float, float, float]:
        """The middle of the fall of the first `count` losses, as log10 of a rate, its depth, and the error of that.

        By least squares: level until the fall begins, straight over log10 of the rate, and level after it. The slope of
        the curve itself is often steepest where a few batches, say the first, had a high loss by chance. Losses above
        the highest running median are cut off for the same reason.
        """
        x, losses = np.log10(self.rates[:count]), np.asarray(self.losses[:count])
        windows = np.lib.stride_tricks.sliding_window_view(losses, 2 * self._reach + 1)
        losses = np.minimum(losses, np.median(windows, axis=1).max())
        ends = np.linspace(x[0], x[-1], STEPS + 1)
        first, last = np.triu_indices(STEPS + 1, 1)
        begins, lengths = ends[first], ends[last] - ends[first]
        shapes = np.clip((x - begins[:, None]) / lengths[:, None], 0, 1)
        shapes -= shapes.mean(axis=1, keepdims=True)
        above, squares = shapes @ losses, (shapes**2).sum(axis=1)
        falls = np.divide(-above, squares, out=np.zeros_like(above), where=squares > 0)
        best = int(np.argmax(np.where(falls > 0, falls**2 * squares, 0.0)))
        left = ((losses - losses.mean()) ** 2).sum() - falls[best] ** 2 * squares[best]
        error = math.sqrt(max(left, 0.0) / max(1, count - 4) / squares[best]) if squares[best] else 0.0
        return float(begins[best] + lengths[best] / 2), float(falls[best]), error


def _first_gap(rising: Sequence[int]) -> int:
    """The last of the leading consecutive integers."""
    last = rising[0]
    for index in rising[1:]:
        if index != last + 1:
            break
        last = index
    return last
