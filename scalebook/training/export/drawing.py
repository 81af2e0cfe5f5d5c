"""SVG from plain numbers: an axis, a legend, a frame. Colours are classes of `chart.css`: light, dark and printed."""

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from scalebook.training.errors import one_line
from scalebook.training.search.map.scales import round_steps

WIDTH: Final = 660
CHARACTER: Final = 6.4
"""Width of one at the size of labels, about."""
LINE: Final = 18
HUES: Final = 10
"""Colours of curves in `chart.css`; then they begin again."""

Ticks = list[tuple[float, str]]
"""Positions from 0 to 1, and what stands there."""


class ValueAxis:
    """From values to positions 0 to 1; logarithmic where `log`. Its ends are round figures or the data's."""

    def __init__(self, values: Sequence[float], *, log: bool = False, from_zero: bool = False) -> None:
        low, high = min(values), max(values)
        if from_zero and low > 0:
            low = 0.0
        if log:
            low, high = low / 1.1, high * 1.1
        elif not from_zero:
            low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
        if not high > low or not math.isfinite(high - low):
            low, high = low - (abs(low) or 1.0) * 0.5, low + (abs(low) or 1.0) * 0.5
        self.log, self.low, self.high = log, low, high

    def position(self, value: float) -> float:
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> Ticks:
        values = self._decades() if self.log else []
        if len(values) < 2:  # also of a logarithmic axis that ends before it has two round figures
            values = round_steps(self.low, self.high)
        return [(self.position(value), label(value)) for value in values]

    def _decades(self) -> list[float]:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            powers = [
                factor * 10.0**ten
                for ten in decades
                for factor in factors
                if self.low <= factor * 10.0**ten <= self.high
            ]
            if len(powers) <= 8:
                break
        return powers[:: -(-len(powers) // 8) or 1]


def label(value: float) -> str:
    """`12,000`, `0.25`."""
    value = 0.0 if abs(value) < 1e-12 else value
    return f"{value:,.0f}" if abs(value) >= 1000 and abs(value) < 1e9 else f"{value:.6g}"


def whole(parts: Sequence[str], height: float, title: str, width: float = WIDTH) -> str:
    """The `<svg>` element; `title` is read aloud."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    name = f'class="chart" role="img" aria-label="{escape(one_line(title))}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {name} {size}>{"".join(parts)}</svg>'


def text(x: float, y: float, words: str, anchor: str = "start", style: str = "", turned: bool = False) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}"{turn}>{escape(one_line(words))}</text>'
    )


def shortened(words: str, width: float) -> str:
    """As much of `text` as about `width` units hold."""
    most = max(4, int(width / CHARACTER))
    return words if len(words) <= most else f"{words[: most - 1]}…"


def frame(
    box: tuple[float, float, float, float], across: Ticks, up: Ticks, *, left: bool = True, below: bool = True
) -> str:
    """Grid, axes and what stands beside them, around `box`: left, top, width, height."""
    x0, y0, width, height = box
    parts = []
    for at, words in up:
        y = y0 + height * (1 - at)
        parts.append(f'<line x1="{x0:.1f}" x2="{x0 + width:.1f}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        if left:
            parts.append(text(x0 - 7, y + 4, words, "end", "tick"))
    for at, words in across:
        x = x0 + width * at
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y0:.1f}" y2="{y0 + height:.1f}" class="grid"/>')
        if below:
            parts.append(text(x, y0 + height + 16, words, "middle", "tick"))
    parts.append(f'<path d="M{x0:.1f} {y0:.1f}V{y0 + height:.1f}H{x0 + width:.1f}" class="axis"/>')
    return "".join(parts)


def margin(ticks: Ticks) -> float:
    """How much room the labels of an upright axis take, its title included."""
    return 34 + CHARACTER * max((len(words) for _, words in ticks), default=1)


def legend(entries: Sequence[tuple[str, str]], top: float, left: float, width: float = WIDTH) -> tuple[str, float]:
    """Marks (SVG around 0, 0; 22 wide) with their names, in rows from `top` on; and where it ends."""
    parts, x, y = [], left, top
    for mark, name in entries:
        words = shortened(name, width - left - 40)
        taken = 30 + CHARACTER * len(words) + 16
        if x > left and x + taken > width:
            x, y = left, y + LINE
        parts.append(f'<g transform="translate({x:.1f} {y - 4:.1f})">{mark}</g>' + text(x + 28, y, words))
        x += taken
    return "".join(parts), (y + LINE if entries else top)
