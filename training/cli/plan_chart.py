"""The planner's charts against the number of workers: samples a second, and the time to a target."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scalebook.training.asking import answer_bars
from scalebook.training.base import ConfigError
from scalebook.training.planner import Curve, TargetAnswer, answer_words
from scalebook.training.tracking import drawing

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def throughput_figure(curves: Sequence[Curve]) -> "Figure":
    """Samples a second. The dotted line is one worker's times the number of workers; a dot is a knee. The ground is
    coloured where there are more workers than were measured at once."""
    figure, (axes,) = drawing.figure()
    single_per_s = curves[0].one_per_s
    counts = sorted({point.workers for curve in curves for point in curve.points})
    marks: dict[str, Artist] = {}
    (marks["ideal"],) = axes.plot(
        counts, [single_per_s * count for count in counts], color=drawing.TARGET, linestyle=(0, (2, 3)), linewidth=1.2
    )
    speeds = [single_per_s * counts[-1], single_per_s]
    for number, curve in enumerate(curves):
        colour = drawing.HUES[number % len(drawing.HUES)]
        points = [(point.workers, point.samples_per_s) for point in curve.points if point.samples_per_s > 0]
        (marks[answer_words.heading(curve)],) = axes.plot(*zip(*points, strict=True), color=colour, linewidth=2)
        if curve.knee is not None and curve.knee.workers >= 1:
            axes.plot(curve.knee.workers, curve.knee.samples_per_s, "o", color=colour, markersize=8)
        speeds += [speed for _, speed in points]
    _against_workers(axes, counts, speeds)
    if 0 < (measured := max(curve.measured for curve in curves)) < counts[-1]:
        colour = drawing.HUES[answer_bars.HUES["extrapolated"]]
        marks["extrapolated"] = axes.axvspan(measured, counts[-1], color=colour, alpha=0.12, linewidth=0)
    drawing.titles(axes, "workers", "samples/s")
    drawing.legend(figure, marks)
    return figure


def target_figure(answer: TargetAnswer) -> "Figure | None":
    """Three panels: updates needed, seconds of an update, and their product; None if the target was never reached."""
    reached = [
        (point.workers, point.updates, point.seconds)
        for point in answer.points
        if point.updates is not None and point.seconds is not None
    ]
    if not reached:
        return None
    panels = {
        "updates to the target": [updates for _, updates, _ in reached],
        "seconds per update": [seconds / updates for _, updates, seconds in reached],
        "seconds to the target": [seconds for _, _, seconds in reached],
    }
    figure, places = drawing.figure(230, 1, 3)
    counts = [workers for workers, _, _ in reached]
    for axes, colour, (title, values) in zip(places, drawing.HUES, panels.items(), strict=False):
        axes.plot(counts, values, "o-", color=colour, linewidth=2, markersize=6)
        _against_workers(axes, counts, values)
        drawing.titles(axes, "workers", above=title)
    return figure


def _against_workers(axes: "Axes", counts: Sequence[int], values: Sequence[float]) -> None:
    """Both axes logarithmic, with a line up from each number of workers."""
    drawing.log_axis(axes, "x", counts[0] / 1.1, counts[-1] * 1.1)
    drawing.log_axis(axes, "y", min(values) / 1.1, max(values) * 1.1)
    axes.set_xticks(counts)


def check_figure(path: Path) -> None:
    """ConfigError for a path that cannot be written."""
    if path.suffix not in (".svg", ".png"):
        raise ConfigError("--figure", f"is {path}", "Use a file name that ends in .svg or .png.")
    if not path.absolute().parent.is_dir():
        raise ConfigError("--figure", f"there is no folder {path.parent}", "Create the folder, or use another path.")
