"""Pictures of a search for documents, drawn without a browser."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalebook.training.config.search.types import SearchSpec
from scalebook.training.search.map.landscape import (
    COLOURS,
    Landscape,
    axes,
    default_panels,
    landscape,
    panels,
    range_of,
    value,
)
from scalebook.training.search.map.scales import Scale, scale
from scalebook.training.search.map.shades import STOPS, Shades
from scalebook.training.search.study.trials import TrialRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKS: dict[str, dict[str, Any]] = {  # as on the page
    "pruned": {"marker": "v", "s": 16},
    "out of memory": {"marker": "s", "s": 18},
    "diverged": {"marker": "x", "s": 22, "linewidths": 1.3},
    "infeasible": {"marker": "D", "s": 16},
    "failed": {"marker": "P", "s": 26},
}
PAD = 0.045
ACROSS = 3


def map_picture(records: Sequence[TrialRecord], spec: SearchSpec, path: Path, title: str = "") -> Path:
    """Draw the map over the first two dimensions that have an order, a panel for each category; as PNG at `path`.

    The same map as on the page: what is said there of its field holds here. ValueError where the search has fewer than
    two such dimensions, or no trial has finished.
    """
    names = axes(spec)
    colour = range_of(records, spec)
    if len(names) < 2 or colour is None:
        raise ValueError("A map needs two dimensions whose values have an order, and a finished trial.")
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap

    x, y = names[:2]
    across, up = scale(spec.dimension(x)), scale(spec.dimension(y))
    parts = [
        landscape(mine, spec, x, y, colour, title=name) for name, mine in panels(records, spec, default_panels(spec))
    ]
    columns = 2 if len(parts) == 4 else min(ACROSS, len(parts))
    rows = -(-len(parts) // columns)  # ceil
    shades = LinearSegmentedColormap.from_list("shades", list(STOPS))
    size = (1.4 + 3.2 * columns if columns > 1 else 7.0, 0.8 + 3.2 * rows if columns > 1 else 4.6)
    figure, places = plt.subplots(
        rows, columns, figsize=size, layout="constrained", sharex=True, sharey=True, squeeze=False
    )
    best = _best(records, spec)
    flat = list(places.flat)
    for i, place in enumerate(flat):
        if i >= len(parts):
            place.set_visible(False)
            continue
        place.set_title(parts[i].title, fontsize=10.5)
        _panel(place, parts[i], shades, best)
        _axes(place, spec, across, up, left=i % columns == 0, below=i + columns >= len(parts))
    bar = figure.colorbar(ScalarMappable(cmap=shades), ax=flat, pad=0.015, aspect=28)
    _label(bar, colour, spec.objectives[0].name)
    handles = {
        label: handle for place in flat for handle, label in zip(*place.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=6 if columns > 1 else 4,
        frameon=False,
        fontsize=9,
    )
    if title:
        figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _best(records: Sequence[TrialRecord], spec: SearchSpec) -> int:
    known = [(reached, record.number) for record in records if (reached := value(record)) is not None]
    return (min if spec.objectives[0].lower else max)(known)[1]


def _panel(place: "Axes", part: Landscape, shades: Any, best: int) -> None:
    """Field, wall, dotted lines, ridge, trials: the last on top."""
    if part.field is not None:
        place.contourf(part.field.x, part.field.y, part.field.shade, levels=20, cmap=shades, vmin=0, vmax=1, alpha=0.85)
    if part.wall is not None:
        colour = COLOURS["out of memory"]
        place.axvspan(part.wall, 1 + PAD, color=colour, alpha=0.1, linewidth=0)
        place.axvline(part.wall, color=colour, linewidth=1)
    for i, line in enumerate(part.iso):
        label = "constant rate / batch" if not i else None
        place.plot(line.x, line.y, ":", color="0.45", linewidth=1, label=label)
    if len(part.ridge) > 1:
        place.plot(part.ridge[:, 0], part.ridge[:, 1], color="#1c2327", linewidth=1.4, label="best of each column")
    for name, look in MARKS.items():
        if name in part.trials:
            place.scatter(
                part.positions[name][:, 0],
                part.positions[name][:, 1],
                label=name,
                zorder=3,
                color=COLOURS[name],
                **look,
            )
    if "finished" not in part.trials:
        return
    at = part.positions["finished"]
    dots: dict[str, Any] = {"cmap": shades, "vmin": 0, "vmax": 1, "s": 22, "edgecolors": "white", "linewidths": 0.6}
    place.scatter(at[:, 0], at[:, 1], c=part.shade, zorder=4, label="finished", **dots)
    for i, trial in enumerate(part.trials["finished"]):
        if trial.number == best:
            place.scatter(
                at[i : i + 1, 0], at[i : i + 1, 1], marker="*", s=170, color="#f2b630", edgecolors="#1c2327",
                linewidths=0.9, zorder=5, label="best",
            )  # fmt: skip


def _axes(place: "Axes", spec: SearchSpec, across: Scale, up: Scale, *, left: bool, below: bool) -> None:
    place.set(xlim=(-PAD, 1 + PAD), ylim=(-PAD, 1 + PAD))
    place.set_xticks([at for at, _ in across.ticks()], [label for _, label in across.ticks()])
    place.set_yticks([at for at, _ in up.ticks()], [label for _, label in up.ticks()])
    place.tick_params(labelsize=9, labelbottom=below)
    place.grid(color="0.9")
    place.set_axisbelow(True)
    if below:
        place.set_xlabel(spec.called(across.dimension.name))
    if left:
        place.set_ylabel(spec.called(up.dimension.name))


def _label(bar: Any, colour: Shades, name: str) -> None:
    ticks = colour.ticks()
    bar.set_ticks([at for at, _ in ticks], labels=[label for _, label in ticks])
    bar.set_label(name)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=9, length=0)
