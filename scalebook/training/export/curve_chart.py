"""Curves over one axis, as SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from scalebook.training.curves import thin
from scalebook.training.export.drawing import (
    HUES,
    LINE,
    WIDTH,
    ValueAxis,
    frame,
    legend,
    margin,
    text,
    whole,
)

POINTS: Final = 300
"""Of one curve: half as many as the chart is wide."""
MOST_CURVES: Final = 40
HEIGHT: Final = 230
LOG_FROM: Final = 30.0
"""A range of values, highest over lowest, from which its axis is logarithmic."""


@dataclass(frozen=True)
class DrawnCurve:
    """One line: `x` rises. `hue` counts from 0; equal names share a line of the legend; `low` and `high` are a band."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    hue: int = 0
    faint: bool = False
    low: Sequence[float] = field(default_factory=tuple)
    high: Sequence[float] = field(default_factory=tuple)


def curve_chart(
    curves: Sequence[DrawnCurve], x_title: str, y_title: str, target: float | None = None, *, log: bool = False
) -> str:
    """The chart, "" where no curve has a finite value. At most `MOST_CURVES`, the first, and `POINTS` of each."""
    kept = sorted(curves, key=lambda curve: curve.faint)[:MOST_CURVES]  # a mean sooner than one of its seeds
    shown = [curve for curve in map(_finite, sorted(kept, key=lambda curve: not curve.faint)) if curve.x]
    if not shown:
        return ""
    values = [*chain.from_iterable((*curve.y, *curve.low, *curve.high) for curve in shown)]
    values += [target] if target is not None and math.isfinite(target) else []
    up = ValueAxis(values, log=min(values) > 0 and (log or max(values) / min(values) > LOG_FROM))
    across = ValueAxis([*chain.from_iterable(curve.x for curve in shown)], from_zero=True)
    box = (left := margin(up.ticks()), 12.0, WIDTH - left - 24, float(HEIGHT))
    parts = [frame(box, across.ticks(), up.ticks())]
    parts += [_band(curve, across, up, box) for curve in shown if curve.low]
    parts += [_line(curve, across, up, box) for curve in shown]
    if target is not None and math.isfinite(target):
        y = box[1] + HEIGHT * (1 - up.position(target))
        parts.append(f'<path d="M{left:.1f} {y:.1f}h{box[2]:.1f}" class="target"/>')
        parts.append(text(WIDTH - 26, y - 5, f"target {target:g}", "end", "tick"))
    parts.append(text(left + box[2] / 2, box[1] + HEIGHT + 34, x_title, "middle", "tick"))
    parts.append(text(13, box[1] + HEIGHT / 2, y_title, "middle", "tick", turned=True))
    names = {curve.name: curve.hue for curve in shown if not curve.faint}
    marks = [(f'<path d="M0 0h22" class="line c{hue % HUES}"/>', name) for name, hue in names.items()]
    drawn, end = legend(marks if len(marks) > 1 else [], box[1] + HEIGHT + 34 + 1.4 * LINE, left)
    return whole([*parts, drawn], max(end, box[1] + HEIGHT + 42), f"{y_title} against {x_title}")


def _finite(curve: DrawnCurve) -> DrawnCurve:
    """Without what cannot be drawn, and thinned; a curve with a band has few points, and keeps them all."""
    if curve.low:
        return curve
    kept = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if math.isfinite(x) and math.isfinite(y)]
    x, y = thin([at for at, _ in kept], [value for _, value in kept], POINTS)
    return DrawnCurve(curve.name, x, y, curve.hue, curve.faint)


def _points(
    x: Sequence[float], y: Sequence[float], across: ValueAxis, up: ValueAxis, box: tuple[float, float, float, float]
) -> list[str]:
    left, top, width, height = box
    return [
        f"{left + width * across.position(at):.1f} {top + height * (1 - up.position(value)):.1f}"
        for at, value in zip(x, y, strict=True)
    ]


def _line(curve: DrawnCurve, across: ValueAxis, up: ValueAxis, box: tuple[float, float, float, float]) -> str:
    points = _points(curve.x, curve.y, across, up, box)
    style = f"line c{curve.hue % HUES}{' faint' if curve.faint else ''}"
    if len(points) == 1:
        x, _, y = points[0].partition(" ")
        return f'<circle cx="{x}" cy="{y}" r="3.5" class="{style} dot"/>'
    return f'<path d="M{"L".join(points)}" class="{style}"/>'


def _band(curve: DrawnCurve, across: ValueAxis, up: ValueAxis, box: tuple[float, float, float, float]) -> str:
    edge = [*_points(curve.x, curve.high, across, up, box), *reversed(_points(curve.x, curve.low, across, up, box))]
    return f'<path d="M{"L".join(edge)}Z" class="band c{curve.hue % HUES}"/>'
