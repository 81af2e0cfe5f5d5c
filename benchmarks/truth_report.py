"""What `benchmarks/virtual_truth.py` prints and writes of its cells."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from benchmarks.machine import machine
from scalebook.training.planning.answer import Point, Range, Reliability

NEAR: Final = 0.1
"""Of the measured updates/s and mean staleness, how far a prediction may be off."""
APART: Final = 0.15
"""The same of the distance of two histograms."""
HEADER: Final = (
    "rule            workers host     updates/s  ratio  staleness  ratio  distance     loss  virtual   plan  ok"
)
Row = Mapping[str, Any]


class Seen(NamedTuple):
    """One run. `stale`: pushes by staleness, as shares."""

    updates_per_s: float
    staleness: float
    stale: list[float]
    losses: list[float]  # of all gradients, in order

    @property
    def loss(self) -> float:
        """The mean of the last tenth."""
        return statistics.fmean(self.losses[-max(1, len(self.losses) // 10) :])


def distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Total variation between two histograms of shares."""
    return sum(abs(a - b) for a, b in zip(first, second, strict=True)) / 2


def row(
    name: str, workers: int, host: str, sleeps: bool, theirs: Sequence[Seen], ours: Sequence[Seen], plan: Point
) -> Row:
    """One cell: real runs, virtual ones of the same seeds, and the planner's play."""
    rate, stale = _mean(theirs, "updates_per_s"), _mean(theirs, "staleness")
    return {
        "rule": name,
        "workers": workers,
        "host": host,
        "sleeps": sleeps,
        "updates_per_s": rate,
        "updates_ratio": _mean(ours, "updates_per_s") / rate,
        "staleness": stale,
        "staleness_ratio": _mean(ours, "staleness") / stale if stale else 1.0,
        "distance": statistics.fmean(distance(a.stale, b.stale) for a, b in zip(theirs, ours, strict=True)),
        "loss": _mean(theirs, "loss"),
        "virtual_loss": _mean(ours, "loss"),
        "planned_updates_ratio": plan.updates_per_s / rate,
        "planned_staleness_ratio": plan.staleness / stale if stale else 1.0,
    }


def _mean(values: Sequence[Seen], what: str) -> float:
    return statistics.fmean(getattr(value, what) for value in values)


def failures(cell: Row) -> list[str]:
    """What of a cell is further off than it may be, in words."""
    said = []
    for what, words in (("updates_ratio", "updates/s"), ("staleness_ratio", "staleness")):
        if abs(cell[what] - 1) > NEAR:
            said.append(f"{words} {cell[what]:.2f} of the measured")
    if cell["distance"] > APART:
        said.append(f"histograms {cell['distance']:.2f} apart")
    return said


def line(cell: Row) -> str:
    """Below HEADER."""
    return (
        f"{cell['rule']:<15} {cell['workers']:>7} {cell['host']:<8} {cell['updates_per_s']:>9.1f} "
        f"{cell['updates_ratio']:>6.2f} {cell['staleness']:>10.2f} {cell['staleness_ratio']:>6.2f} "
        f"{cell['distance']:>9.2f} {cell['loss']:>8.3f} {cell['virtual_loss']:>8.3f} "
        f"{cell['planned_updates_ratio']:>6.2f}  {'NO' if failures(cell) else 'yes'}"
    )


def verdicts(rows: Sequence[Row], linear: Mapping[int, float]) -> list[str]:
    """How many cells agree, which do not and in what, and what async workers make of `linear` updates/s, by number."""
    said = []
    for sleeps, words in ((True, "workers that sleep"), (False, "workers that only compute")):
        cells = [cell for cell in rows if cell["sleeps"] is sleeps]
        if not cells:
            continue
        good = [cell for cell in cells if not failures(cell)]
        rates = [cell["updates_ratio"] for cell in cells]
        plans = [cell["planned_updates_ratio"] for cell in cells]
        said.append(
            f"{words}: {len(good)} of {len(cells)} cells agree; updates/s {min(rates):.2f} to {max(rates):.2f} of the "
            f"measured, by the planner {min(plans):.2f} to {max(plans):.2f}"
        )
    said += [
        f"  {cell['rule']}, {cell['workers']} workers, {cell['host']}: {'; '.join(failed)}"
        for cell in rows
        if (failed := failures(cell))
    ]
    for cell in rows:
        if cell["rule"] == "async" and cell["sleeps"]:
            share = cell["updates_per_s"] / linear[cell["workers"]]
            said.append(f"{cell['workers']} async workers, {cell['host']}: {share:.3f} of linear")
    return said


def ranges(rows: Sequence[Row], command: str) -> Reliability:
    """Of the planner: of workers that sleep, and of those that only compute and share caches; staleness where there is
    any."""
    rates = {
        sleeps: [cell["planned_updates_ratio"] for cell in rows if cell["sleeps"] is sleeps] for sleeps in (True, False)
    }
    stale = [cell["planned_staleness_ratio"] for cell in rows if cell["staleness"]]
    return Reliability(
        _range(rates[True]), _range(stale), len(rows), command, machine(), _range(rates[False] or rates[True])
    )


def _range(values: Sequence[float]) -> Range:
    return Range(round(min(values), 2), round(max(values), 2))
