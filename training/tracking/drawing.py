"""Charts by matplotlib, outside the browser: their common style, curves over an axis, and their files.

A figure's colours are for a light background; on a dark one, `chart.css` changes those of text and lines. A unit is a
pixel of the SVG.
"""

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from io import StringIO
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal

from scalebook.training.base import one_line
from scalebook.training.tracking.curves import thin

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH: Final = 660.0
HEIGHT: Final = 280.0
LINE: Final = 18.0
"""The height of a line in a legend, in units."""
UNITS: Final = 72.0
"""Units per inch, for matplotlib."""
DPI: Final = 150
"""Dots per inch of a PNG: about two pixels per unit."""
INK, DIM, GRID, AXIS, TARGET = "#1c2327", "#66716f", "#e6e8e5", "#b9c0bd", "#8a9493"
"""Colours that `chart.css` changes on a dark background."""
HUES: Final = (
    "#12868c", "#dd7a1b", "#7c62b3", "#3f7fd1", "#c4533c", "#5b9a3e", "#bd5695", "#8a7a52", "#4d6b78", "#b09a1a",
)  # fmt: skip
"""Colours of curves, used in turn."""
STYLE: Final = Path(__file__).with_name("chart.css")
LONGEST: Final = 90
"""The longest name in a legend, characters."""
POINTS: Final = 300
"""The most points of one curve: half the chart's width."""
MOST_CURVES: Final = 40
LOG_FROM: Final = 30.0
"""The ratio of the highest to the lowest value from which an axis is logarithmic."""
_ONE: Final = Lock()
"""Guards matplotlib's settings, which are global."""


@dataclass(frozen=True)
class DrawnCurve:
    """One curve; `x` is increasing. `hue` counts from 0; equal names share a line of the legend; `low` and `high` bound
    a band."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    hue: int = 0
    faint: bool = False
    low: Sequence[float] = field(default_factory=tuple)
    high: Sequence[float] = field(default_factory=tuple)


def curve_figure(
    curves: Sequence[DrawnCurve], x_title: str, y_title: str, target: float | None = None, *, log: bool = False
) -> "Figure | None":
    """Draw the first `MOST_CURVES` curves, with at most `POINTS` points each. None if no curve has a finite value."""
    selected = sorted(curves, key=lambda curve: curve.faint)[:MOST_CURVES]  # a mean sooner than one of its seeds
    visible = [curve for curve in map(_finite, sorted(selected, key=lambda curve: not curve.faint)) if curve.x]
    if not visible:
        return None
    target = target if target is not None and math.isfinite(target) else None
    values = [*chain.from_iterable((*curve.y, *curve.low, *curve.high) for curve in visible)]
    values += [] if target is None else [target]
    drawn, (axes,) = figure()
    marks: dict[str, Artist] = {}
    for curve in visible:
        colour = HUES[curve.hue % len(HUES)]
        if curve.low:
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.14, linewidth=0)
        look: dict[str, Any] = {"linewidth": 1, "alpha": 0.4} if curve.faint else {"linewidth": 2}
        (line,) = axes.plot(curve.x, curve.y, color=colour, marker="o" if len(curve.x) == 1 else "", **look)
        if not curve.faint:
            marks[curve.name] = line
    if min(values) > 0 and (log or max(values) / min(values) > LOG_FROM):
        log_axis(axes, "y", min(values) / 1.1, max(values) * 1.1)
    axes.set_xlim(left=min(0.0, *(curve.x[0] for curve in visible)))
    if target is not None:
        axes.axhline(target, color=TARGET, linewidth=1.2, linestyle=(0, (2, 3)))
        axes.annotate(
            f"target {target:g}", (0, target), (4, 3), xycoords=("axes fraction", "data"), ha="left", color=DIM,
            textcoords="offset points", fontsize=11.5,
        )  # fmt: skip
    titles(axes, x_title, y_title)
    if len(marks) > 1:
        legend(drawn, marks)
    return drawn


def _finite(curve: DrawnCurve) -> DrawnCurve:
    """Without what cannot be drawn, and thinned; a curve with a band has few points, and keeps them all."""
    if curve.low:
        return curve
    points = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if math.isfinite(x) and math.isfinite(y)]
    x, y = thin([x_value for x_value, _ in points], [value for _, value in points], POINTS)
    return replace(curve, x=x, y=y)


# --- the look --------------------------------------------------------------------------------------------------------


def figure(
    height: float = HEIGHT, rows: int = 1, columns: int = 1, *, shared: bool = False
) -> "tuple[Figure, list[Axes]]":
    """A figure `WIDTH` units wide, and its axes, row by row; `shared`: all have the same scales."""
    from matplotlib.figure import Figure  # 0.4 s, and few runs and commands draw
    from matplotlib.ticker import FuncFormatter

    chart = Figure(figsize=(WIDTH / UNITS, height / UNITS), layout="constrained")
    every = list(chart.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared).flat)
    for axes in every:
        axes.set_facecolor("none")
        axes.grid(color=GRID, linewidth=1)
        axes.set_axisbelow(True)
        axes.margins(x=0, y=0.04)
        axes.tick_params(length=0, labelsize=11.5, labelcolor=DIM, pad=6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(AXIS)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: label(value)))
    return chart, every


def log_axis(axes: "Axes", name: Literal["x", "y"], low: float, high: float) -> None:
    """Make one axis logarithmic from `low` to `high`, with as many round tick labels as fit."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    decades = math.log10(high / low)
    steps = (1.0, 2.0, 5.0) if decades < 2.4 else (1.0, 3.0) if decades < 4 else (1.0,)
    axes.set(**{f"{name}scale": "log", f"{name}lim": (low, high)})
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=steps, numticks=9))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: label(value)))


def titles(axes: "Axes", x: str = "", y: str = "", above: str = "") -> None:
    """Set the titles of the axes as plain text: nothing in them is a formula."""
    axes.set_xlabel(plain(x), color=DIM, fontsize=11.5)
    axes.set_ylabel(plain(y), color=DIM, fontsize=11.5)
    axes.set_title(plain(above), color=INK, fontsize=12, fontweight="bold")


def legend(figure: "Figure", marks: "Mapping[str, Artist]", height: float = HEIGHT) -> None:
    """Add a legend below the figure, which is `height` high without it, and grows."""
    names = [plain(name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…") for name in marks]
    columns = max(1, min(len(names), int(WIDTH / (45 + 6.6 * max(map(len, names))))))
    figure.set_figheight((height + LINE * -(-len(names) // columns) + 8) / UNITS)
    figure.legend(
        [*marks.values()], names, loc="outside lower center", ncols=columns, frameon=False, fontsize=12,
        labelcolor=INK, borderpad=0.2,
    )  # fmt: skip


def label(value: float) -> str:
    """A tick label: `12,000`, `0.25`."""
    value = 0.0 if abs(value) < 1e-12 else value
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.6g}"


def plain(words: str) -> str:
    """`words` on one line, without formulas or control characters."""
    return one_line(words).replace("$", r"\$")


# --- files -----------------------------------------------------------------------------------------------------------


def as_svg(figure: "Figure", title: str) -> str:
    """The figure as an `<svg>` element for a page with `chart.css`: equal figures give equal bytes. `title` is for
    screen readers."""
    import matplotlib as mpl

    out = StringIO()
    none = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with _ONE, mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "scalebook"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the reader's font may have what matplotlib's has not
        figure.savefig(out, format="svg", facecolor="none", metadata=none)
    parts = r"<defs>\s*<style.*?</defs>|<g id=\"[^\"]*\"| d=\"[^\"]*\"|\n\s*"
    text = re.sub(parts, _cleared, out.getvalue(), flags=re.DOTALL)
    start = f'<svg class="chart" role="img" aria-label="{escape(one_line(title))}"'
    return text[text.index("<svg") :].replace("<svg", start, 1).replace('pt"', '"', 2)  # a unit is a pixel


def _cleared(match: "re.Match[str]") -> str:
    """Without a style of its own, which would be the whole page's, names that several charts would have, and more of a
    point than its hundredths."""
    if match[0].startswith("<"):
        return "<g" if match[0].startswith("<g") else ""
    return " " + " ".join(re.sub(r"(\.\d\d)\d+", r"\1", match[0]).split())


def as_file(svg: str) -> str:
    """`svg` with the colours of `chart.css` built in, as a file of its own."""
    return svg.replace(">", f"><style>{STYLE.read_text(encoding='utf-8')}</style>", 1)


def save(figure: "Figure", path: Path, title: str = "") -> None:
    """Save the figure as `.svg`, with the `title`, or as `.png`."""
    if path.suffix == ".svg":
        path.write_text(as_file(as_svg(figure, title)), encoding="utf-8")
    else:
        figure.savefig(path, dpi=DPI)
