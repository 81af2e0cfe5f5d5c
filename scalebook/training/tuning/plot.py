"""A curve drawn with characters."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

WIDTH: Final = 64
HEIGHT: Final = 12
HEADROOM: Final = 0.5
"""Above the highest point of the first half, as a share of the fall: what explodes further is cut off."""


def plot(rates: Sequence[float], losses: Sequence[float], marks: Mapping[float, str]) -> list[str]:
    """Lines of at most 80 characters: losses by the logarithm of the rates; `marks`, rate -> one character, below."""
    low = min(losses)
    high = max(losses[: max(1, len(losses) // 2)])
    high += HEADROOM * (high - low) or abs(high) or 1.0
    rows = [[" "] * WIDTH for _ in range(HEIGHT)]
    for rate, loss in zip(rates, losses, strict=True):
        row = round((high - min(loss, high)) / (high - low) * (HEIGHT - 1))
        rows[row][_column(rate, rates)] = "*" if loss <= high else "^"
    axis = ["-"] * WIDTH
    for rate, mark in marks.items():
        axis[_column(rate, rates)] = mark
    lines = [f"{_label(i, low, high)} |{''.join(row).rstrip()}" for i, row in enumerate(rows)]
    ends = f"{rates[0]:.1e}".ljust(WIDTH - 8) + f"{rates[-1]:.1e}".rjust(8)
    return [*lines, f"{'':8} +{''.join(axis)}", f"{'':8}  {ends}"]


def _column(rate: float, rates: Sequence[float]) -> int:
    whole = math.log(rates[-1] / rates[0]) or 1.0
    return round(math.log(rate / rates[0]) / whole * (WIDTH - 1))


def _label(row: int, low: float, high: float) -> str:
    return f"{high - (high - low) * row / (HEIGHT - 1):8.3g}" if row % 3 == 0 or row == HEIGHT - 1 else " " * 8
