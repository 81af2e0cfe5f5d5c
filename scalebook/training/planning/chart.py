"""Samples a second against workers, as SVG, with the line of an ideal system; and as a picture."""

import math
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from scalebook.training.errors import ConfigError
from scalebook.training.export.drawing import HUES, LINE, WIDTH, ValueAxis, frame, legend, margin, text, whole
from scalebook.training.planning.answer import Curve, Point
from scalebook.training.planning.words import heading

HEIGHT: Final = 260.0
Of = Callable[[Point], float]


def throughput_chart(curves: Sequence[Curve]) -> str:
    """Both axes logarithmic; the dashed line is as many times one worker as there are workers; a dot is a knee."""
    return _chart(curves, lambda point: point.samples_per_s, "samples/s", ideal=True)


def staleness_chart(curves: Sequence[Curve]) -> str:
    """Mean staleness against workers; "" where all gradients are fresh."""
    return _chart(curves, lambda point: point.staleness, "mean staleness", ideal=False)


def _chart(curves: Sequence[Curve], of: Of, title: str, *, ideal: bool) -> str:
    lines = [[(float(p.workers), of(p)) for p in curve.points if _drawable(of(p))] for curve in curves]
    drawn = [point for line in lines for point in line]
    if not drawn:
        return ""
    most = max(workers for workers, _ in drawn)
    one = curves[0].one_per_s
    dashed = [(1.0, one), (most, one * most)] if ideal else []
    up = ValueAxis([value for _, value in (*drawn, *dashed)], log=True)
    across = ValueAxis([1.0, *(workers for workers, _ in drawn)], log=True)
    workers = sorted({int(workers) for workers, _ in drawn})
    ticks = [(across.position(count), f"{count:,}") for count in workers]
    box = (left := margin(up.ticks()), 12.0, WIDTH - left - 24, HEIGHT)

    def path(points: Sequence[tuple[float, float]]) -> str:
        return "L".join(
            f"{left + box[2] * across.position(x):.1f} {box[1] + HEIGHT * (1 - up.position(y)):.1f}" for x, y in points
        )

    parts = [frame(box, ticks, up.ticks())]
    if dashed:
        parts.append(f'<path d="M{path(dashed)}" class="target"/>')
    for number, (curve, line) in enumerate(zip(curves, lines, strict=True)):
        look = f"line c{number % HUES}"
        if line:
            parts.append(f'<path d="M{path(line)}" class="{look}"/>')
        if ideal and curve.knee is not None and curve.knee.workers >= 1:
            x, _, y = path([(curve.knee.workers, curve.knee.samples_per_s)]).partition(" ")
            parts.append(f'<circle cx="{x}" cy="{y}" r="4" class="{look} dot"/>')
    parts.append(text(left + box[2] / 2, box[1] + HEIGHT + 34, "workers", "middle", "tick"))
    parts.append(text(13, box[1] + HEIGHT / 2, title, "middle", "tick", turned=True))
    marks = [
        (f'<path d="M0 0h22" class="line c{number % HUES}"/>', heading(curve)) for number, curve in enumerate(curves)
    ]
    entries, end = legend(marks, box[1] + HEIGHT + 34 + 1.4 * LINE, left)
    return whole([*parts, entries], max(end, box[1] + HEIGHT + 42), f"{title} against workers")


def _drawable(value: float) -> bool:
    return math.isfinite(value) and value > 0


def save_figure(curves: Sequence[Curve], path: Path) -> None:
    """Throughput, as `.svg` or `.png`. ConfigError for another ending."""
    check_figure(path)
    if path.suffix == ".svg":
        path.write_text(throughput_chart(curves).replace(">", f"><style>{style()}</style>", 1), encoding="utf-8")
        return
    from matplotlib.figure import Figure  # 0.4 s, and only pictures need it

    figure = Figure(figsize=(6.6, 4.0), dpi=140, layout="constrained")
    axes = figure.add_subplot()
    counts = sorted({point.workers for curve in curves for point in curve.points})
    axes.plot(counts, [curves[0].one_per_s * count for count in counts], ":", color="0.6", label="ideal")
    for curve in curves:
        (line,) = axes.plot(
            [point.workers for point in curve.points],
            [point.samples_per_s for point in curve.points],
            label=heading(curve),
        )
        if curve.knee is not None:
            axes.plot(curve.knee.workers, curve.knee.samples_per_s, "o", color=line.get_color(), markersize=5)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_xlabel("workers")
    axes.set_ylabel("samples/s")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path)


def style() -> str:
    """What a chart's classes look like, for a file of its own."""
    return resources.files("scalebook.training.export").joinpath("chart.css").read_text(encoding="utf-8")


def check_figure(path: Path) -> None:
    """ConfigError for what cannot be written."""
    if path.suffix not in (".svg", ".png"):
        raise ConfigError("--figure", f"is {path}", "Let it end in .svg or .png.")
    if not path.absolute().parent.is_dir():
        raise ConfigError("--figure", f"there is no folder {path.parent}", "Make it, or write another path.")
