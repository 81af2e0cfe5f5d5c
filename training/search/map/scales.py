"""Where a value of an ordered dimension lies on an axis from 0 to 1, and which values are written beside it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from scalebook.training.experiments.search import Dimension

MOST_TICKS = 9
LOG_RATIO = 8.0  # a grid that spans more than that is spread by its logarithm


@dataclass(frozen=True)
class Scale:
    """The axis of one dimension. Positions are 0 at its lowest value, 1 at its highest, logarithmic where it is."""

    dimension: Dimension
    low: float
    high: float
    log: bool

    def position(self, value: float) -> float:
        """The position; beyond 0 to 1 for a value out of the dimension's range (a point given by hand)."""
        forward = self._forward()
        return (forward(value) - forward(self.low)) / (forward(self.high) - forward(self.low))

    def value(self, position: float) -> float:
        """The value at a position."""
        forward = self._forward()
        inner = forward(self.low) + position * (forward(self.high) - forward(self.low))
        return math.exp(inner) if self.log else inner

    def _forward(self) -> Callable[[float], float]:
        return math.log if self.log else float

    def ticks(self) -> list[tuple[float, str]]:
        """Positions and labels: the values themselves where they are few, else round figures."""
        ticks = self._discrete() if self.dimension.kind in ("powers_of_two", "grid") else self._round()
        every = -(-len(ticks) // MOST_TICKS)  # ceil
        return [(self.position(value), self._label(value)) for value in ticks[::every]]

    def _label(self, value: float) -> str:
        whole = value == int(value) and abs(value) < 1e6
        return self.dimension.label(int(value) if whole else value)

    def _discrete(self) -> list[float]:
        return [float(value) for value in self.dimension.grid()]

    def _round(self) -> list[float]:
        if not self.log:
            return round_steps(self.low, self.high)
        ticks: list[float] = []
        for factors in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):  # the finest that still has room
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = [factor * 10.0**decade for decade in decades for factor in factors]
            inside = [step for step in steps if self.low * 0.999 <= step <= self.high * 1.001]
            if not ticks or len(inside) <= MOST_TICKS:
                ticks = inside
        return ticks if len(ticks) > 1 else [self.low, self.high]


def round_steps(low: float, high: float) -> list[float]:
    """Values in steps of 1, 2 or 5 times a power of ten, three or more steps from `low` to `high`, which is larger."""
    step = 10.0 ** math.floor(math.log10((high - low) / 3))
    step *= next(factor for factor in (5, 2, 1) if factor == 1 or (high - low) / (step * factor) >= 3)
    return [step * i for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def scale(dimension: Dimension) -> Scale:
    """The scale of an ordered dimension with at least two values; `can_be_axis` says whether it is one."""
    if dimension.kind in ("powers_of_two", "grid"):
        values = [float(value) for value in dimension.grid()]
        low, high = min(values), max(values)
        return Scale(dimension, low, high, low > 0 and high / low >= LOG_RATIO)
    return Scale(dimension, dimension.low, dimension.high, dimension.kind == "log_uniform" or dimension.log)


def can_be_axis(dimension: Dimension) -> bool:
    """Whether its values have an order, and there is more than one."""
    if not dimension.ordered:
        return False
    if dimension.kind in ("powers_of_two", "grid"):
        return len({float(value) for value in dimension.grid()}) > 1
    return dimension.high > dimension.low
