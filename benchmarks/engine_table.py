"""From measurements to the printed table: medians, and ratios within a repeat. Pure."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from benchmarks.engine_task import Measured

Figure = Literal["updates_per_s", "gradients_per_s", "cpu_ms"]
Results = Mapping[str, Sequence[Measured]]
WORDS: Final[Mapping[Figure, str]] = {
    "updates_per_s": "updates/s",
    "gradients_per_s": "gradients/s",
    "cpu_ms": "CPU per gradient",
}


class Goal(NamedTuple):
    """Two systems, compared in one figure. `goal`: the ratio to reach; "" if none is set."""

    above: str
    below: str
    figure: Figure
    goal: str = ""


class Ratio(NamedTuple):
    """Of `goal.above` to `goal.below` in the same repeat: median, smallest, largest over the repeats."""

    goal: Goal
    median: float
    low: float
    high: float


def ratios(results: Results, goals: Sequence[Goal]) -> list[Ratio]:
    """Each goal of which both systems were measured. Slow changes of the machine cancel within a repeat."""
    ratios_ = []
    for goal in goals:
        if goal.above in results and goal.below in results:
            pairs = zip(results[goal.above], results[goal.below], strict=True)
            values = [getattr(a, goal.figure) / getattr(b, goal.figure) for a, b in pairs]
            ratios_.append(Ratio(goal, statistics.median(values), min(values), max(values)))
    return ratios_


def table(results: Results, goals: Sequence[Goal]) -> str:
    """Markdown: medians over repeats, then ratios."""
    lines = ["| system | updates/s | gradients/s | CPU ms/gradient | mean staleness |", "|---|---:|---:|---:|---:|"]
    for name, runs in results.items():
        updates, gradients, cpu_ms, stale = (statistics.median(column) for column in zip(*runs, strict=True))
        staleness = "-" if math.isnan(stale) else f"{stale:.2f}"
        lines.append(f"| {name} | {updates:.0f} | {gradients:.0f} | {cpu_ms:.2f} | {staleness} |")
    ratios_ = ratios(results, goals)
    if ratios_:
        lines += ["", "| ratio | figure | median | range | goal |", "|---|---|---:|---:|---|"]
    for (above, below, figure, goal), median, low, high in ratios_:
        lines.append(f"| {above} / {below} | {WORDS[figure]} | {median:.2f} | {low:.2f} – {high:.2f} | {goal or '-'} |")
    return "\n".join(lines)
