"""Charts outside the browser, by matplotlib: the look they share, curves over an axis, and their files.

A figure has one set of colours, which is for a light ground; where the reader's is dark, `chart.css` changes those of
words and lines that would not be seen. A unit is a pixel of the SVG.
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

from scalebook.training.base.errors import one_line
from scalebook.training.tracking.curves import thin

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH: Final = 660.0
HEIGHT: Final = 280.0
LINE: Final = 18.0
"""Of a legend."""
UNITS: Final = 72.0
"""An inch, of which matplotlib thinks."""
DPI: Final = 150
"""Of a PNG: about two pixels a unit."""
INK, DIM, GRID, AXIS, TARGET = "#1c2327", "#66716f", "#e6e8e5", "#b9c0bd", "#8a9493"
"""Each is changed in `chart.css`, where the ground is dark."""
HUES: Final = (
    "#12868c", "#dd7a1b", "#7c62b3", "#3f7fd1", "#c4533c", "#5b9a3e", "#bd5695", "#8a7a52", "#4d6b78", "#b09a1a",
)  # fmt: skip
"""Of curves; then they begin again."""
STYLE: Final = Path(__file__).with_name("chart.css")
LONGEST: Final = 90
"""Characters of a name in a legend."""
POINTS: Final = 300
"""Of one curve: half as many as the chart is wide."""
MOST_CURVES: Final = 40
LOG_FROM: Final = 30.0
"""A range of values, highest over lowest, from which its axis is logarithmic."""
_ONE: Final = Lock()
"""Matplotlib's settings are the process's."""


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


def curve_figure(
    curves: Sequence[DrawnCurve], x_title: str, y_title: str, target: float | None = None, *, log: bool = False
) -> "Figure | None":
    """None where no curve has a finite value. At most `MOST_CURVES`, the first, and `POINTS` of each."""
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
            f"target {target:g}", (1, target), (-4, 3), xycoords=("axes fraction", "data"), ha="right", color=DIM,
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
    """`WIDTH` units wide, and its axes, row by row; `shared`: all have the same scales."""
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
    """One axis, logarithmic from `low` to `high`, with round figures as many as there is room for."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    decades = math.log10(high / low)
    steps = (1.0, 2.0, 5.0) if decades < 2.4 else (1.0, 3.0) if decades < 4 else (1.0,)
    axes.set(**{f"{name}scale": "log", f"{name}lim": (low, high)})
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=steps, numticks=9))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: label(value)))


def titles(axes: "Axes", x: str = "", y: str = "", above: str = "") -> None:
    """What stands beside the axes and above them, as it is: nothing in it is a formula."""
    axes.set_xlabel(plain(x), color=DIM, fontsize=11.5)
    axes.set_ylabel(plain(y), color=DIM, fontsize=11.5)
    axes.set_title(plain(above), color=INK, fontsize=12, fontweight="bold")


def legend(figure: "Figure", marks: "Mapping[str, Artist]", height: float = HEIGHT) -> None:
    """Names below the figure, which is `height` without them and grows by as many lines."""
    names = [plain(name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…") for name in marks]
    columns = max(1, min(len(names), int(WIDTH / (45 + 6.6 * max(map(len, names))))))
    figure.set_figheight((height + LINE * -(-len(names) // columns) + 8) / UNITS)
    figure.legend(
        [*marks.values()], names, loc="outside lower center", ncols=columns, frameon=False, fontsize=12,
        labelcolor=INK, borderpad=0.2,
    )  # fmt: skip


def label(value: float) -> str:
    """`12,000`, `0.25`."""
    value = 0.0 if abs(value) < 1e-12 else value
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.6g}"


def plain(words: str) -> str:
    """One line without formulas or control characters."""
    return one_line(words).replace("$", r"\$")


# --- files -----------------------------------------------------------------------------------------------------------


def as_svg(figure: "Figure", title: str) -> str:
    """An `<svg>` element for a page that has `chart.css`: equal figures give equal bytes. `title` is read aloud."""
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
    """`svg` with the colours that a page would give it."""
    return svg.replace(">", f"><style>{STYLE.read_text(encoding='utf-8')}</style>", 1)


def save(figure: "Figure", path: Path, title: str = "") -> None:
    """As `.svg`, which has the `title`, or as `.png`."""
    if path.suffix == ".svg":
        path.write_text(as_file(as_svg(figure, title)), encoding="utf-8")
    else:
        figure.savefig(path, dpi=DPI)
