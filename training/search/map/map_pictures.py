"""The map of a search as a picture: what `landscape` says, a panel for each category."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from scalebook.training.experiments.search import SearchSpec
from scalebook.training.search.map.landscape import (
    COLOURS,
    SIDE_BY_SIDE,
    Landscape,
    axes,
    default_panels,
    landscape,
    panels,
    range_of,
)
from scalebook.training.search.map.scales import Scale, scale
from scalebook.training.search.map.shades import STOPS
from scalebook.training.search.map.surface import Array
from scalebook.training.search.study.trials import TrialRecord, best
from scalebook.training.tracking import drawing

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS: Final[dict[str, dict[str, Any]]] = {  # as on the page
    "pruned": {"marker": "v", "s": 26, "linewidths": 0},
    "out of memory": {"marker": "s", "s": 30, "linewidths": 0},
    "diverged": {"marker": "x", "s": 34, "linewidths": 1.7},
    "infeasible": {"marker": "D", "s": 26, "linewidths": 0},
    "failed": {"marker": "P", "s": 40, "linewidths": 0},
    "running": {"marker": "o", "s": 38, "linewidths": 1.7, "facecolors": "none"},
}
MOST_MARKS: Final = 2000
CELLS: Final = 160
"""Of a field along each axis: no more than pixels."""
PAD: Final = 0.045
"""Beyond the lowest and the highest value, so that no mark is cut."""
GROUND, LINES, RIDGE = "#fbfbfa", "#e7e9e6", "#1c2328"
"""Of panels, whose ground is light on a dark page, too."""


def map_figure(records: Sequence[TrialRecord], spec: SearchSpec) -> "Figure | None":
    """The map over the first two ordered dimensions; None with fewer of them, or before a trial has finished.

    `SIDE_BY_SIDE` panels and `MOST_MARKS` trials at most, the first and the best, which has a star.
    """
    names, colour, first = axes(spec), range_of(records, spec), best(records, spec)
    if len(names) < 2 or colour is None or first is None:
        return None
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.lines import Line2D

    x, y = names[:2]
    drawable = [*records[:MOST_MARKS], *(record for record in records[MOST_MARKS:] if record is first)]
    parts = [
        landscape(members, spec, x, y, colour, title=title, cells=CELLS)
        for title, members in panels(drawable, spec, default_panels(spec))[:SIDE_BY_SIDE]
    ]
    across, up = scale(spec.dimension(x)), scale(spec.dimension(y))
    columns = min(len(parts), 3 if len(parts) not in (2, 4) else 2)
    rows = -(-len(parts) // columns)  # ceil
    height = rows * {1: 330.0, 2: 270.0, 3: 200.0}[columns] + 90
    figure, places = drawing.figure(height, rows, columns, shared=True)
    shades = LinearSegmentedColormap.from_list("shades", list(STOPS))
    marks: dict[str, Artist] = {}
    for i, place in enumerate(places):
        if i >= len(parts):
            place.set_visible(False)
            continue
        marks |= _panel(place, parts[i], shades, first.number)
        _axes(place, across, up, columns=columns, below=i + columns >= len(parts))
        drawing.titles(
            place,
            spec.called(x) if i + columns >= len(parts) else "",
            spec.called(y) if i % columns == 0 else "",
            parts[i].title,
        )
    if any(len(part.ridge) > 1 for part in parts):
        marks["best of each column"] = Line2D([], [], color=drawing.INK, linewidth=1.6)
    ticks = colour.ticks()
    bar = figure.colorbar(ScalarMappable(cmap=shades), ax=places, location="bottom", aspect=60, pad=0.02)
    bar.set_ticks([position for position, _ in ticks], labels=[words for _, words in ticks])
    bar.set_label(drawing.plain(spec.objectives[0].name), color=drawing.DIM, fontsize=11.5)
    bar.outline.set_visible(False)
    bar.ax.set_facecolor("none")
    bar.ax.tick_params(labelsize=11.5, labelcolor=drawing.DIM, length=0)
    drawing.legend(figure, marks, height)
    return figure


def _panel(place: "Axes", part: Landscape, shades: Any, best: int) -> "dict[str, Artist]":
    """Field, wall, dotted lines, ridge, trials: the last on top. What is drawn, by its name in the legend."""
    place.set_facecolor(GROUND)
    marks: dict[str, Artist] = {}
    half = 0.5 / (CELLS - 1)
    if part.field is not None:
        box = (-half, 1 + half, -half, 1 + half)
        place.imshow(
            part.field.shade, origin="lower", extent=box, cmap=shades, vmin=0, vmax=1, aspect="auto",
            interpolation="none", zorder=0.6,
        )  # fmt: skip
    if part.wall is not None:
        place.axvspan(part.wall, 1 + PAD, color=COLOURS["out of memory"], alpha=0.12, linewidth=0)
    for line in part.iso:
        (marks["constant rate / batch"],) = place.plot(line.x, line.y, ":", color=drawing.TARGET, linewidth=1.2)
    if len(part.ridge) > 1:
        place.plot(part.ridge[:, 0], part.ridge[:, 1], color=RIDGE, linewidth=1.6)
    for name, look in MARKS.items():
        if name in part.trials:
            colour = {"color": COLOURS[name]} if "facecolors" not in look else {"edgecolors": COLOURS[name]}
            marks[name] = _dots(place, part.positions[name], zorder=3, **colour, **look)
    if "finished" in part.trials:
        positions = part.positions["finished"]
        marks["finished"] = _dots(
            place,
            positions,
            c=part.shade,
            zorder=4,
            cmap=shades,
            vmin=0,
            vmax=1,
            s=40,
            edgecolors="white",
            linewidths=0.8,
        )
        for i, trial in enumerate(part.trials["finished"]):
            if trial.number == best:
                marks["best"] = _dots(
                    place,
                    positions[i : i + 1],
                    marker="*",
                    s=190,
                    color="#f2b630",
                    edgecolors=RIDGE,
                    linewidths=0.9,
                    zorder=5,
                )
    return marks


def _dots(place: "Axes", positions: Array, **look: Any) -> "Artist":
    return place.scatter(positions[:, 0], positions[:, 1], **look)


def _axes(place: "Axes", across: Scale, up: Scale, *, columns: int, below: bool) -> None:
    place.set(xlim=(-PAD, 1 + PAD), ylim=(-PAD, 1 + PAD))
    ticks, room = across.ticks(), (drawing.WIDTH - 90) / columns
    every = -(-len(ticks) * (10 + 7 * max(len(label) for _, label in ticks)) // int(room))
    place.set_xticks([position for position, _ in ticks[::every]], [label for _, label in ticks[::every]])
    place.set_yticks([position for position, _ in up.ticks()], [label for _, label in up.ticks()])
    place.tick_params(labelbottom=below)
    place.grid(color=LINES)
