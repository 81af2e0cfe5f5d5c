"""The verdict on a claim. It follows from the intervals over seeds, by the rule below, and from nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from scalebook.training.claims.evidence import Evidence, Witness
from scalebook.training.claims.intervals import FEWEST, Confidence, mean_interval, ratio_interval
from scalebook.training.notebook.cells import ClaimCell
from scalebook.training.tracking.directions import Direction
from scalebook.training.tracking.names import axis_words

Verdict = Literal["supported", "not supported", "not resolved"]
ALPHA: Final = 0.05


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
    chance: float = 1.0
    """Of so clear a verdict if the truth lay at the bounds; 1 where there is none."""

    @property
    def censored(self) -> int:
        """How many of its runs never reached the target."""
        return sum(amount.censored for amount in self.evidence.amounts.values())


@dataclass(frozen=True)
class Judgement:
    """A claim with its rows, that of `against` first."""

    cell: ClaimCell
    rows: Sequence[ClaimRow]
    alone: Verdict
    """What its rows say by themselves."""
    verdict: Verdict
    """Beside the other claims of its notebook."""
    direction: Direction
    """What is better of its metric, and who says so."""
    beside: int = 1
    """How many claims the notebook makes, this one among them."""

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
        base = "" if cell.against is None else f" x that of {self.rows[0].evidence.label}"
        return f"{figure}: {' and '.join(bounds)}{base}"


def judge_all(witness: Witness) -> dict[str, Judgement]:
    """The verdicts on the claims of a notebook, by name, from the runs as they are recorded.

    A row is supported when its whole interval lies within the bounds, not supported when all of it lies outside on one
    side, else not resolved; so are fewer than FEWEST seeds, a side that lacks runs, and one whose best point lies at an
    edge of what was tried. A claim is supported when all its rows are (each at its level, which keeps that of the
    whole: Berger 1982), not supported when any row is not (Bonferroni over the rows). The claims of a notebook are
    corrected together, so that of all its definite verdicts one is wrong by chance in at most one notebook of twenty
    (Holm 1979): the clearest of m claims is held to 5 % / m, the next to 5 % / (m - 1), until one does not hold.
    """
    cells, judged, directions = [], {}, {}
    for written in witness.nb.claims():
        cell = witness.named(written)
        cells.append(cell)
        judged[cell.name], directions[cell.name] = _rows(witness, cell), witness.direction
    chances = {name: _chance([row for row in rows if row.verdict is not None]) for name, rows in judged.items()}
    definite = _holm({name: chance for name, (_, chance) in chances.items()})
    return {
        cell.name: Judgement(
            cell,
            judged[cell.name],
            chances[cell.name][0],
            chances[cell.name][0] if cell.name in definite else "not resolved",
            directions[cell.name],
            len(cells),
        )
        for cell in cells
    }


def verdict(interval: Confidence, at_least: float | None, at_most: float | None) -> tuple[Verdict, float]:
    """Of one interval and its bounds, at 95 %; with the chance of so clear a one (two-sided) if the truth lay at them.

    A bound that is just met is not resolved: `at_most: 1` means sooner, and what takes as long is not sooner.
    """
    inside = [interval.chance_above(at_least)] if at_least is not None else []
    inside += [interval.chance_below(at_most)] if at_most is not None else []
    outside = [interval.chance_below(at_least)] if at_least is not None else []
    outside += [interval.chance_above(at_most)] if at_most is not None else []
    supported, refuted = min(1.0, 2 * max(inside)), min(1.0, 2 * min(outside))
    if supported <= ALPHA:
        return "supported", supported
    return ("not supported", refuted) if refuted <= ALPHA else ("not resolved", min(supported, refuted))


def _chance(rows: Sequence[ClaimRow]) -> tuple[Verdict, float]:
    """What the rows of a claim say together, and the chance of so clear a verdict."""
    refuted = min((row.chance for row in rows if row.verdict == "not supported"), default=1.0) * len(rows)
    if refuted <= ALPHA:
        return "not supported", refuted
    if all(row.verdict == "supported" for row in rows):
        return "supported", max(row.chance for row in rows)
    return "not resolved", 1.0


def _holm(chances: Mapping[str, float]) -> set[str]:
    """Those that hold among all of them."""
    held: set[str] = set()
    for place, (name, chance) in enumerate(sorted(chances.items(), key=lambda item: item[1])):
        if chance > ALPHA / (len(chances) - place):
            break
        held.add(name)
    return held


def _rows(witness: Witness, cell: ClaimCell) -> list[ClaimRow]:
    sides = witness.sides(cell)
    base = sides[0] if cell.against is not None else None
    rows = (
        []
        if base is None
        else [ClaimRow(base, mean_interval([*base.amounts.values()], [*base.left_out.values()]), None, None)]
    )
    return rows + [_row(cell, side, base) for side in (sides if base is None else sides[1:])]


def _row(cell: ClaimCell, side: Evidence, base: Evidence | None) -> ClaimRow:
    figure = mean_interval([*side.amounts.values()], [*side.left_out.values()])
    for name, evidence in (("", side), (f"{base.label}: " if base else "", base)):
        if evidence is not None and evidence.lacking:
            return ClaimRow(side, figure, None, "not resolved", name + evidence.lacking)
        if evidence is not None and len(evidence.amounts) < FEWEST:
            seeds = f"{len(evidence.amounts)} seed{'s' if len(evidence.amounts) != 1 else ''}"
            return ClaimRow(side, figure, None, "not resolved", f"{name}{seeds}, and {FEWEST} are the fewest")
    claimed = figure
    if base is not None:
        left_out = (side.left_out or side.amounts, base.left_out or base.amounts)
        claimed = ratio_interval(side.amounts, base.amounts, left_out)
    if claimed is None:
        return ClaimRow(side, figure, None, "not resolved", "a ratio needs values above 0")
    for name, evidence in (("", side), (f"{base.label}: " if base else "", base)):
        if evidence is not None and evidence.at_edge and not evidence.none_reached:
            why = f"{name}the best point lies at an edge of what was tried: widen {evidence.at_edge}"
            return ClaimRow(side, figure, claimed, "not resolved", why)
    said, chance = verdict(claimed, cell.at_least, cell.at_most)
    return ClaimRow(side, figure, claimed, said, chance=chance)
