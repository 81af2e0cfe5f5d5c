"""The verdict on a claim. It follows from the intervals over seeds, by the rule below, and from nothing else."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scalebook.training.claims.evidence import Evidence, Witness
from scalebook.training.claims.intervals import FEWEST, Confidence, mean_interval, ratio_interval
from scalebook.training.notebook.cells import ClaimCell
from scalebook.training.tracking.directions import Direction
from scalebook.training.tracking.names import axis_words

Verdict = Literal["supported", "not supported", "not resolved"]


@dataclass(frozen=True)
class ClaimRow:
    """One side. `figure` is its own; `claimed` what the claim is about: the ratio to `against`, or the figure again.

    The row of `against` has neither `claimed` nor a verdict.
    """

    evidence: Evidence
    figure: Confidence | None
    claimed: Confidence | None
    verdict: Verdict | None
    why: str = ""
    """Why it is not resolved, where the interval alone does not say."""

    @property
    def censored(self) -> int:
        """How many of its runs never reached the target."""
        return sum(amount.censored for amount in self.evidence.amounts.values())


@dataclass(frozen=True)
class Judgement:
    """A claim with its rows, that of `against` first."""

    cell: ClaimCell
    rows: Sequence[ClaimRow]
    verdict: Verdict
    direction: Direction
    """What is better of its metric, and who says so."""

    @property
    def statement(self) -> str:
        """What is claimed, in words: `samples to val/loss 0.2: at most 1.25 x that of workers: 1`."""
        cell, virtual = self.cell, [row.evidence.is_virtual for row in self.rows if row.evidence.amounts]
        if cell.target is not None:
            figure = f"{axis_words(cell.figure, virtual)} to {cell.metric} {cell.target:g}"
        else:
            figure = f"best {cell.metric}" if cell.figure == "best" else cell.figure.replace("_per_second", "/s")
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (("at least", cell.at_least), ("at most", cell.at_most))
            if bound is not None
        ]
        beside = "" if cell.against is None else f" x that of {self.rows[0].evidence.label}"
        return f"{figure}: {' and '.join(bounds)}{beside}"


def judge(witness: Witness, cell: ClaimCell) -> Judgement:
    """The claim's verdict, from the runs as they are recorded.

    A row is supported when its whole interval lies within the bounds, not supported when all of it lies outside on one
    side, else not resolved; so are fewer than FEWEST seeds, and a side that lacks runs. The claim is supported when all
    its rows are (each at 95 %, which keeps the level of the whole: Berger 1982), and not supported when any row is not;
    with k rows that happens by chance with up to k times 2.5 %.
    """
    cell = witness.named(cell)
    sides = witness.sides(cell)
    base = sides[0] if cell.against is not None else None
    rows = [] if base is None else [ClaimRow(base, mean_interval([*base.amounts.values()]), None, None)]
    rows += [_row(cell, side, base) for side in (sides if base is None else sides[1:])]
    verdicts = [row.verdict for row in rows if row.verdict is not None]
    return Judgement(cell, rows, _together(verdicts), witness.direction)


def verdict(interval: Confidence, at_least: float | None, at_most: float | None) -> Verdict:
    """Of one interval and its bounds."""
    least, most = -math.inf if at_least is None else at_least, math.inf if at_most is None else at_most
    if interval.low >= least and interval.high <= most:
        return "supported"
    return "not supported" if interval.high < least or interval.low > most else "not resolved"


def _together(verdicts: Sequence[Verdict]) -> Verdict:
    if "not supported" in verdicts:
        return "not supported"
    return "not resolved" if "not resolved" in verdicts else "supported"


def _row(cell: ClaimCell, side: Evidence, base: Evidence | None) -> ClaimRow:
    figure = mean_interval([*side.amounts.values()])
    for name, evidence in (("", side), (f"{base.label}: " if base else "", base)):
        if evidence is not None and evidence.lacking:
            return ClaimRow(side, figure, None, "not resolved", name + evidence.lacking)
        if evidence is not None and len(evidence.amounts) < FEWEST:
            seeds = f"{len(evidence.amounts)} seed{'s' if len(evidence.amounts) != 1 else ''}"
            return ClaimRow(side, figure, None, "not resolved", f"{name}{seeds}, and {FEWEST} are the fewest")
    claimed = figure if base is None else ratio_interval(side.amounts, base.amounts)
    if claimed is None:
        return ClaimRow(side, figure, None, "not resolved", "a ratio needs values above 0")
    return ClaimRow(side, figure, claimed, verdict(claimed, cell.at_least, cell.at_most))
