"""The chart of an answer as plain values, which a browser draws, and as a picture in exports."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scalebook.training.asking.answer_rows import Findings, Kind, decided_by, times
from scalebook.training.notebook import factor
from scalebook.training.tracking import Goal, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS: Final = {"seconds": "time", "samples": "samples", "best": "best value"}
ROOM: Final = 1.35
"""Room beside the smallest and the largest value, as a factor."""
TICKS: Final = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.33, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 3, 4, 5, 10, 20, 50, 100,
)  # fmt: skip
MOST_TICKS: Final = 6
HUES: Final[dict[Kind, int]] = {"measured": 0, "simulated": 2, "extrapolated": 1}
"""Places of the colours of `drawing.HUES`, which are those of the browser too."""
ROW: Final = 52.0
MARGIN: Final = 62.0
"""Heights of a row of the picture, and of its axis, in units."""


@dataclass(frozen=True)
class Bar:
    """One row: a value, and the ends of its interval if it has one."""

    words: str
    kind: Kind
    figure: str
    value: float
    low: float | None
    high: float | None
    text: str
    beyond: int = 0
    """1 where it is more than the value, -1 where it is less."""

    @property
    def about(self) -> str:
        """`measured, time: 0.57x (0.52 to 0.63)`."""
        return f"{self.kind}, {self.figure}: {self.text}"


def bars(findings: Findings) -> list[Bar]:
    """The sides that have been compared, then those that are planned."""
    rows = []
    for row in findings.rows[1:]:
        figure = decided_by(findings, row)
        if (ratio := row.ratios.get(figure)) is not None:
            low, high = (None, None) if ratio.no_low or ratio.no_high else (ratio.low, ratio.high)
            beyond = 1 if ratio.no_high else -1 if ratio.no_low else 0
            rows.append(Bar(row.words, row.kind, WORDS[figure], ratio.value, low, high, times(ratio), beyond))
    for planned in findings.planned:
        middle, within = math.sqrt(planned.low * planned.high), f"{factor(planned.low)}x to {factor(planned.high)}x"
        rows.append(Bar(planned.words, "extrapolated", "time per sample", middle, planned.low, planned.high, within))
    return rows


def spoken(findings: Findings) -> str:
    """The chart in words, for screen readers."""
    lines = "; ".join(f"{bar.words} {bar.text}" for bar in bars(findings))
    return f"Each bar is a multiple of {findings.rows[0].words}: {lines}"


def drawable(rows: Sequence[Bar]) -> bool:
    """Whether there is anything to draw on a logarithmic axis."""
    return bool(rows) and all(end is None or end > 0 for row in rows for end in (row.low, row.value, row.high))


def axis(rows: Sequence[Bar]) -> tuple[float, float, list[float]]:
    """The ends of the axis, and its ticks."""
    every = [1.0, *(end for row in rows for end in (row.low, row.value, row.high) if end is not None)]
    low, high = min(every) / ROOM, max(every) * ROOM
    ticks: list[float] = []
    for tick in sorted((tick for tick in TICKS if low <= tick <= high), key=lambda tick: abs(math.log(tick))):
        if all(abs(math.log(tick / other)) >= math.log(high / low) / MOST_TICKS for other in ticks):
            ticks.append(tick)
    return low, high, sorted(ticks)


def title(findings: Findings) -> str:
    """Of the axis."""
    baseline = findings.rows[0].words
    if findings.figure == "best":
        return f"best {findings.metric}, as a multiple of the best {findings.metric} of {baseline}"
    return f"multiple of {baseline}"


def better_side(findings: Findings, goal: Goal | None) -> str:
    """On which side of the line at 1 is what is better."""
    side = "right" if findings.figure == "best" and goal == "max" else "left"
    return f"{side} of the line is better"


def picture(findings: Findings, goal: Goal | None) -> "Figure | None":
    """A row for each side, on a logarithmic axis with a line at 1; None where nothing has been compared."""
    rows = bars(findings)
    if not drawable(rows):
        return None
    height = MARGIN + ROW * len(rows)
    chart, (axes,) = drawing.figure(height)
    low, high, ticks = axis(rows)
    drawing.log_axis(axes, "x", low, high)
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.set(ylim=(0.7 - len(rows), 0.95), yticks=[])
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    marks: dict[str, Any] = {}
    for place, row in enumerate(rows):
        colour, wide = drawing.HUES[HUES[row.kind]], row.kind == "extrapolated"
        ends = [[row.value - row.low], [row.high - row.value]] if row.low and row.high else None
        mark = axes.errorbar(
            [row.value], [-place], xerr=ends, color=colour, fmt={0: "o", 1: ">", -1: "<"}[row.beyond], markersize=8,
            elinewidth=6 if wide else 2.4, capsize=0 if wide else 5, capthick=2.4,
        )  # fmt: skip
        marks.setdefault(row.kind, mark)
        axes.vlines(
            1, -place - 0.3, -place + 0.18, color=drawing.TARGET, linewidth=2, zorder=1
        )  # not through the words
        for text, up, colour, weight in (
            (row.words, 27, drawing.INK, "bold"), (row.about, 12, drawing.DIM, "normal"),
        ):  # fmt: skip
            axes.annotate(
                drawing.plain(text), (0, -place), (2, up), color=colour, textcoords="offset points", fontweight=weight,
                xycoords=("axes fraction", "data"), fontsize=12, annotation_clip=False,
            )  # fmt: skip
    drawing.titles(axes, f"{title(findings)} ({better_side(findings, goal)})")
    if len(marks) > 1:
        drawing.legend(chart, marks, height)
    return chart
