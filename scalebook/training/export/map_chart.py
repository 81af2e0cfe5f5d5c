"""The map of a search, as SVG: what `scalebook.training.search.map` says, a panel for each category."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from scalebook.training.config.search.types import SearchSpec
from scalebook.training.export.drawing import CHARACTER, LINE, WIDTH, frame, legend, margin, shortened, text, whole
from scalebook.training.search.map.landscape import (
    COLOURS,
    KINDS,
    Landscape,
    axes,
    default_panels,
    landscape,
    panels,
    range_of,
)
from scalebook.training.search.map.scales import Scale, scale
from scalebook.training.search.map.shades import Shades, colour_at
from scalebook.training.search.study.trials import TrialRecord

CELLS: Final = 44
"""Of a field along each axis."""
LEVELS: Final = 12
"""Shades of a field: neighbours of one shade are one rectangle."""
MOST_PANELS: Final = 6
MOST_MARKS: Final = 2000
GAP: Final = 26
PAD: Final = 0.045
"""Beyond the lowest and the highest value, so that no mark is cut."""
MARKS: Final = {  # around 0, 0; of the shapes on the page
    "pruned": '<path d="M-4 -3h8l-4 7z" fill="{0}"/>',
    "out of memory": '<path d="M-3.5 -3.5h7v7h-7z" fill="{0}"/>',
    "diverged": '<path d="M-3.5 -3.5l7 7m0 -7l-7 7" stroke="{0}" stroke-width="1.7"/>',
    "infeasible": '<path d="M0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z" fill="{0}"/>',
    "failed": '<path d="M-4 0h8m-4 -4v8" stroke="{0}" stroke-width="2.4"/>',
    "running": '<circle r="4" fill="none" stroke="{0}" stroke-width="1.7"/>',
}
FINISHED: Final = '<circle r="4" fill="{0}" stroke="#fff" stroke-width=".8"/>'
BEST: Final = (
    '<path d="M0 -8l2.4 5 5.5 .7-4 3.8 1 5.5-4.9-2.7-4.9 2.7 1-5.5-4-3.8 5.5-.7z" fill="#f2b630" stroke="#1c2327"/>'
)

Box = tuple[float, float, float, float]
Place = Callable[[float, float], tuple[float, float]]


def map_chart(records: Sequence[TrialRecord], spec: SearchSpec, best: int | None) -> str:
    """Over the first two dimensions that have an order; "" with fewer of them, or before a trial has finished.

    `best` is the number of the trial with a star. `MOST_PANELS` panels and `MOST_MARKS` trials at most, the first and
    the best.
    """
    names, colour = axes(spec), range_of(records, spec)
    if len(names) < 2 or colour is None:
        return ""
    x, y = names[:2]
    drawable = [*records[:MOST_MARKS], *(record for record in records[MOST_MARKS:] if record.number == best)]
    parts = [
        landscape(mine, spec, x, y, colour, title=title, cells=CELLS)
        for title, mine in panels(drawable, spec, default_panels(spec))[:MOST_PANELS]
    ]
    across, up = scale(spec.dimension(x)), scale(spec.dimension(y))
    columns = min(len(parts), 3 if len(parts) not in (2, 4) else 2)
    left, head = margin(up.ticks()), 24.0 if parts[0].title else 10.0
    wide = (WIDTH - left - 12 - GAP * (columns - 1)) / columns
    high = min(330.0, max(170.0, wide * 0.85))
    drawn, rows = [], -(-len(parts) // columns)  # ceil
    for i, part in enumerate(parts):
        row, column = divmod(i, columns)
        box = (left + column * (wide + GAP), head + row * (high + head + 6), wide, high)
        last = i + columns >= len(parts)
        drawn.append(_panel(part, box, across, up, best, left=column == 0, below=last))
    end = head + rows * (high + head + 6) - head
    drawn.append(text(left + (WIDTH - left) / 2, end + 30, spec.called(x), "middle", "tick"))
    drawn.append(text(13, end / 2, spec.called(y), "middle", "tick", turned=True))
    keys, end = legend(_keys(parts), end + 30 + 1.4 * LINE, left)
    bar, end = _bar(colour, spec.objectives[0].name, left, end + 2)
    return whole([*drawn, keys, bar], end, f"{spec.objectives[0].name} over {x} and {y}")


def _panel(part: Landscape, box: Box, across: Scale, up: Scale, best: int | None, *, left: bool, below: bool) -> str:
    """From below to above: ground, field, frame, trials."""
    x0, y0, width, height = box

    def place(x: float, y: float) -> tuple[float, float]:
        return x0 + width * (x + PAD) / (1 + 2 * PAD), y0 + height * (1 - (y + PAD) / (1 + 2 * PAD))

    room = 8 + CHARACTER * max((len(words) for _, words in across.ticks()), default=1)
    every = max(1, -(-len(across.ticks()) // max(1, int(width / room))))
    ticks = [((at + PAD) / (1 + 2 * PAD), words) for at, words in across.ticks()[::every]]
    upright = [((at + PAD) / (1 + 2 * PAD), words) for at, words in up.ticks()]
    elements = [f'<rect x="{x0:.1f}" y="{y0:.1f}" width="{width:.1f}" height="{height:.1f}" class="ground"/>']
    elements += [f'<g class="panel">{frame(box, ticks, upright, left=left, below=below)}</g>', *_field(part, place)]
    if part.title:
        elements.append(text(x0 + width / 2, y0 - 7, shortened(part.title, width), "middle", "name"))
    if part.wall is not None:
        x, _ = place(part.wall, 0)
        elements.append(
            f'<rect x="{x:.1f}" y="{y0:.1f}" width="{x0 + width - x:.1f}" height="{height:.1f}" class="wall"/>'
        )
    if len(part.ridge) > 1:
        line = "L".join("{:.1f} {:.1f}".format(*place(*at)) for at in part.ridge)
        elements.append(f'<path d="M{line}" class="ridge"/>')
    star = ""
    for kind in (*MARKS, "finished"):
        for i, (at, trial) in enumerate(zip(part.positions[kind], part.trials.get(kind, []), strict=True)):
            fill = colour_at(float(part.shade[i])) if kind == "finished" else COLOURS[kind]
            where = 'transform="translate({:.1f} {:.1f})"'.format(*place(float(at[0]), float(at[1])))
            elements.append(f"<g {where}>{MARKS.get(kind, FINISHED).format(fill)}</g>")
            if kind == "finished" and trial.number == best:
                star = f"<g {where}>{BEST}</g>"
    return "".join([*elements, star])


def _field(part: Landscape, place: Place) -> list[str]:
    """Rectangles, each a run of one row's cells whose shades are alike."""
    if part.field is None:
        return []
    step = 1 / (CELLS - 1)
    levels = np.where(np.isnan(part.field.shade), -1, np.floor(np.nan_to_num(part.field.shade) * LEVELS * 0.9999))
    rectangles = []
    for y, row in zip(part.field.y, levels.astype(int), strict=True):
        start = 0
        for i in range(1, CELLS + 1):
            if i < CELLS and row[i] == row[start]:
                continue
            if row[start] >= 0:
                left, top = place(float(part.field.x[start]) - step / 2, float(y) + step / 2)
                right, low = place(float(part.field.x[i - 1]) + step / 2, float(y) - step / 2)
                fill = colour_at((row[start] + 0.5) / LEVELS)
                rectangles.append(
                    f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left + 0.3:.1f}" '
                    f'height="{low - top + 0.3:.1f}" fill="{fill}"/>'
                )
            start = i
    return rectangles


def _keys(parts: Sequence[Landscape]) -> list[tuple[str, str]]:
    """The legend: what is in any of the panels."""
    there = {kind for part in parts for kind in part.trials}
    marks = {kind: mark.format(COLOURS[kind]) for kind, mark in MARKS.items()} | {
        "finished": FINISHED.format("#2a838c")
    }
    entries = [
        (f'<g transform="translate(11 0)">{marks[kind]}</g>', kind) for kind in KINDS if kind in there & set(marks)
    ]
    if any(len(part.ridge) > 1 for part in parts):
        entries.append(('<path d="M0 0h22" class="ridge outside"/>', "best of each column"))
    return [*entries, (f'<g transform="translate(11 0)">{BEST}</g>', "best")]


def _bar(colour: Shades, name: str, left: float, top: float) -> tuple[str, float]:
    """The colours with their values, and where it ends."""
    width, count = WIDTH - left - 60, 40
    parts = [
        f'<rect x="{left + i * width / count:.1f}" y="{top:.1f}" width="{width / count + 0.3:.1f}" height="9" '
        f'fill="{colour_at((i + 0.5) / count)}"/>'
        for i in range(count)
    ]
    for at, words in colour.ticks():
        anchor = "start" if at == 0 else "end" if at == 1 else "middle"
        parts.append(text(left + at * width, top + 23, words, anchor, "tick"))
    parts.append(text(left, top + 40, name, "start", "tick"))
    return "".join(parts), top + 48
