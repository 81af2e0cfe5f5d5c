"""The verdict on a claim. It follows from the intervals over seeds, by the rule below, and from nothing else."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from scalebook.training.notebook.cells import ClaimCell
from scalebook.training.notebook.claims import claim_locks as locking
from scalebook.training.notebook.claims.claim_locks import Lock
from scalebook.training.notebook.claims.claim_words import claim_sentence
from scalebook.training.notebook.claims.evidence import Evidence, EvidenceReader
from scalebook.training.notebook.claims.intervals import (
    ALPHA,
    FEWEST,
    PAIRED_FROM,
    PAIRED_FROM_BEFORE,
    Confidence,
    mean_interval,
    ratio_interval,
)
from scalebook.training.notebook.claims.looks import (
    SHORT_ID,
    ClaimLook,
    Growths,
    History,
    JudgedCell,
    history,
    level_of,
    spent,
)
from scalebook.training.notebook.claims.power import (
    Design,
    DrawnSide,
    Pair,
    Power,
    power,
    resolving,
    spread_of,
    truth_within_bounds,
)
from scalebook.training.tracking import Direction, names

Verdict = Literal["supported", "refuted", "not resolved"]


@dataclass(frozen=True)
class Clearness:
    """What the rows of a claim say together: clear at the level of `tests` tests if the chance is below it."""

    verdict: Verdict = "not resolved"
    chance: float = 1.0
    tests: int = 1
    growths: Growths | None = ()
    """Those of its looks; None where looks are not counted."""

    def at(self, alpha: float) -> bool:
        return self.chance <= _level(alpha / self.tests, self.growths)


def _level(alpha: float, growths: Growths | None) -> float:
    return alpha if growths is None else level_of(alpha, growths)


@dataclass(frozen=True)
class ClaimRow:
    """One side of the claim `of`. `figure` is its own, `ratio` that to the side `against`; `claimed` is what the
    verdict is about: one of the two, or this ratio over the ratio `against`.

    The rows of `against` have neither `claimed` nor a verdict.
    """

    evidence: Evidence
    of: ClaimCell
    figure: Confidence | None
    ratio: Confidence | None
    claimed: Confidence | None
    verdict: Verdict | None
    why: str = ""
    """Why it is not resolved, where the interval alone does not say."""
    chance: float = 1.0
    """The chance of so clear a verdict if the truth lay at the bounds; 1 if there is none."""

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
    """The verdict of its rows by themselves."""
    verdict: Verdict
    """The verdict beside the other claims of its notebook."""
    directions: Mapping[str, Direction]
    """The better direction, and who says so, by metric."""
    beside: int = 1
    """How many claims the notebook has, this one included, and those removed since its first run began."""
    gone: int = 0
    """Those of them that were removed."""
    power: Power | None = None
    """While runs are lacking: how likely they are to support it."""
    resolved_by: int | None = None
    """If all runs are there and do not resolve it: seeds that would, if its figures are as measured. 0: more than the
    most that are tried."""

    looks: tuple[int, ...] = ()
    """Seeds of each look, the last one by the present runs; of a claim whose runs are not complete those before."""
    earlier_verdicts: tuple[tuple[int, str], ...] = ()
    """Seeds and verdict of each look before the present one, as far as they are recorded."""
    unrecorded: str = ""
    """Why this look could not be recorded."""

    lock: Lock | None = None
    """Its lock, by its runs; None while none has begun."""
    locked: "Judgement | None" = None
    """The judgement by the terms when its first run began, if these have changed."""

    @property
    def sentence(self) -> str:
        """What is claimed, as a sentence that begins with its subject."""
        simulated = [row.evidence.is_simulated for row in self.rows if row.evidence.amounts]
        return claim_sentence(self.cell, [row.evidence.label for row in self.rows], simulated)

    @property
    def statement(self) -> str:
        """What is claimed, as it is written into notes and archives: `samples to val/loss 0.2: at most 1.25 x that of
        workers: 1`."""
        cell = self.cell
        bounds = " and ".join(
            f"{word} {bound:g}"
            for word, bound in (("at least", cell.at_least), ("at most", cell.at_most))
            if bound is not None
        )
        if not cell.ratios:
            base = "" if cell.against is None else f" x that of {self.rows[0].evidence.label}"
            return f"{self._figure(cell)}: {bounds}{base}"
        parts = []
        for place, plain in enumerate(cell.plain):
            base, of = (row.evidence.label for row in self.rows[2 * place : 2 * place + 2])
            parts.append(f"{self._figure(plain)}, {of} / {base}")
        against = f" x {parts.pop(0)}" if cell.against is not None else ""
        return f"{' and '.join(parts)}: {bounds}{against}"

    def _figure(self, plain: ClaimCell) -> str:
        if plain.target is not None:
            simulated = [row.evidence.is_simulated for row in self.rows if row.evidence.amounts and row.of == plain]
            return f"{names.axis_words(plain.figure, simulated)} to {plain.metric} {plain.target:g}"
        return f"best {plain.metric}" if plain.figure == "best" else plain.figure.replace("_per_second", "/s")


def judge_all(evidence: EvidenceReader) -> dict[str, Judgement]:
    """The verdicts on the claims of a notebook, by name, from the runs as they are recorded.

    A row is supported when its whole interval lies within the bounds, refuted when all of it lies outside on one side,
    else not resolved; so are fewer than FEWEST seeds, a side that lacks runs, and one whose best point lies at an edge
    of what was tried. A claim is supported when all its rows are (each at its level, which keeps that of the whole:
    Berger 1982), refuted when any row is (Bonferroni over the rows). The claims of a notebook are corrected together,
    so that of all its definite verdicts one is wrong by chance in at most one notebook of twenty (Holm 1979): the
    clearest of m claims is held to 5 % / m, the next to 5 % / (m - 1), until one does not hold. That 5 % is for all
    looks together (`looks.py`), and a look at runs that were not judged before is recorded with them.
    """
    locks = locking.read(evidence.locked_claims, evidence.nb, evidence.description)
    judgements = _together(evidence, evidence.nb.claims(), locks)
    changed = {name for name, lock in locks.by_claim.items() if lock is not None and lock.changes}
    before = _together(evidence, locking.as_locked(evidence.nb, locks), locks) if changed else {}
    judgements = {name: _recorded(evidence, judgement) for name, judgement in judgements.items()}
    return {
        name: replace(judgement, locked=before[name]) if name in changed else judgement
        for name, judgement in judgements.items()
    }


def _together(evidence: EvidenceReader, written: Sequence[ClaimCell], locks: locking.Locks) -> dict[str, Judgement]:
    """By name. Claims that were made and removed count as not clear."""
    cells, gone = [evidence.named(cell) for cell in written], len(locks.gone)
    judged, directions, clear, past = {}, {}, {}, {}
    for cell in cells:
        rows, directions[cell.name] = _rows(evidence, cell)
        lock = locks.by_claim[cell.name]
        past[cell.name] = _history(evidence, cell, rows, () if lock is None else lock.looks)
        growths = past[cell.name].growths if evidence.counts_looks else None
        judged[cell.name] = [_decided(cell, row, growths) for row in rows]
        clear[cell.name] = _clearness([row for row in judged[cell.name] if row.verdict is not None], growths)
    definite = _holm(clear, gone)
    judgements = {}
    for cell in cells:
        alone, rows = clear[cell.name].verdict, judged[cell.name]
        outcome: Verdict = alone if cell.name in definite else "not resolved"
        beside = len(cells) + gone
        outlook, seeds = _outlook(cell, rows, beside, outcome, past[cell.name])
        judgements[cell.name] = Judgement(
            cell, rows, alone, outcome, directions[cell.name], beside, gone, power=outlook, resolved_by=seeds,
            looks=past[cell.name].seeds, lock=locks.by_claim[cell.name],
        )  # fmt: skip
    return judgements


def _history(
    evidence: EvidenceReader, cell: ClaimCell, rows: Sequence[ClaimRow], looks: Sequence[ClaimLook]
) -> History:
    return history(looks, _look(evidence, cell, rows), [*evidence.hashes(cell).values()])


def _look(evidence: EvidenceReader, cell: ClaimCell, rows: Sequence[ClaimRow]) -> ClaimLook | None:
    """The runs that these rows are judged by; None where there is nothing to judge."""
    if not any(row.claimed is not None and row.verdict is not None for row in rows):
        return None
    seeds: dict[str, int] = {}
    runs: dict[str, set[str]] = {}
    for row in rows:
        side = row.evidence
        if not side.lacking and len(side.amounts) >= FEWEST:
            seeds[side.cell] = len(side.amounts)
            runs.setdefault(side.cell, set()).update(run[:SHORT_ID] for run in side.run_ids)
    cells = {
        hashed: JudgedCell(seeds[name], " ".join(sorted(runs[name])), name in cell.searches)
        for name, hashed in evidence.hashes(cell).items()
        if name in seeds
    }
    return ClaimLook(cell.name, cells, time.time()) if cells else None


def _recorded(evidence: EvidenceReader, judgement: Judgement) -> Judgement:
    """With its look recorded, if it is a new one."""
    look, lock = _look(evidence, judgement.cell, judgement.rows), judgement.lock
    if lock is None:
        return judgement
    judgement = replace(judgement, earlier_verdicts=_earlier(lock.looks, judgement.cell.name, look))
    if look is None or any(look.same_runs(past) for past in lock.looks if past.spent):
        return judgement
    past = history(lock.looks, look, [*look.cells])
    look = replace(look, spent=spent(past.growths), verdict=judgement.verdict)
    why = evidence.record_look(look, lock.runs)
    return replace(judgement, lock=replace(lock, looks=(*lock.looks, look)), unrecorded=why)


def _earlier(looks: Sequence[ClaimLook], claim: str, present: ClaimLook | None) -> tuple[tuple[int, str], ...]:
    """Seeds and verdict of the looks of a claim before the present one, which may be one of them; all without one."""
    recorded = sorted((look for look in looks if look.claim == claim and look.verdict), key=lambda look: look.when)
    again = [place for place, look in enumerate(recorded) if present is not None and look.same_runs(present)]
    return tuple((look.seeds, look.verdict) for look in recorded[: again[0] if again else None])


def _decided(cell: ClaimCell, row: ClaimRow, growths: Growths | None) -> ClaimRow:
    """The row with its verdict, and with intervals of the level of this look."""
    level = _level(ALPHA, growths)

    def at_level(interval: Confidence | None) -> Confidence | None:
        return None if interval is None else replace(interval, level=1 - level, centred=growths is not None)

    row = replace(row, figure=at_level(row.figure), ratio=at_level(row.ratio), claimed=at_level(row.claimed))
    if row.verdict is None or row.why or row.claimed is None:
        return row
    outcome, chance = verdict(row.claimed, cell.at_least, cell.at_most, level)
    return replace(row, verdict=outcome, chance=chance)


def verdict(
    interval: Confidence, at_least: float | None, at_most: float | None, level: float = ALPHA
) -> tuple[Verdict, float]:
    """The verdict on one interval and its bounds at a level, and the two-sided chance of one so clear if the truth lay
    at them.

    A bound that is just met is not resolved: `at_most: 1` means sooner, and what takes as long is not sooner.
    """
    inside = [interval.chance_above(at_least)] if at_least is not None else []
    inside += [interval.chance_below(at_most)] if at_most is not None else []
    outside = [interval.chance_below(at_least)] if at_least is not None else []
    outside += [interval.chance_above(at_most)] if at_most is not None else []
    supported, refuted = min(1.0, 2 * max(inside)), min(1.0, 2 * min(outside))
    if supported <= level:
        return "supported", supported
    return ("refuted", refuted) if refuted <= level else ("not resolved", min(supported, refuted))


def _clearness(rows: Sequence[ClaimRow], growths: Growths | None) -> Clearness:
    chances = [row.chance for row in rows if row.verdict == "refuted"]
    refuted = Clearness("refuted", min(chances, default=1.0), len(rows), growths)
    if refuted.at(ALPHA):
        return refuted
    if all(row.verdict == "supported" for row in rows):
        return Clearness("supported", max(row.chance for row in rows), 1, growths)
    return Clearness(growths=growths)


def _holm(clear: Mapping[str, Clearness], gone: int = 0) -> set[str]:
    """Those that hold among all of them, and as many as are `gone`."""
    held: set[str] = set()
    while len(held) < len(clear):
        alpha = ALPHA / (len(clear) + gone - len(held))
        holds = {name for name, one in clear.items() if name not in held and one.at(alpha)}
        if not holds:
            break
        held |= holds
    return held


def _outlook(
    cell: ClaimCell, rows: Sequence[ClaimRow], beside: int, outcome: Verdict, before: History
) -> tuple[Power | None, int | None]:
    """Before its runs are complete its power; after them, where they do not resolve it, how many seeds would."""
    judged = [row for row in rows if row.verdict is not None]
    lacking = any(row.evidence.lacking for row in rows)
    truth = truth_within_bounds(judged[0].of.figure, cell.at_least, cell.at_most)
    if truth is None or any(row.evidence.seeds < 1 for row in rows) or (not lacking and outcome != "not resolved"):
        return None, None
    axis = all(plain.figure in names.AXES for plain in cell.plain)
    amounts = [[*row.evidence.amounts.values()] or [*row.evidence.earlier] for row in rows]
    pooled, measured = spread_of(amounts, axis)
    levels = {id(row): math.log(truth) for row in judged}
    if not lacking:
        if any(row.why or row.claimed is None or (not row.claimed.logs and row.claimed.value <= 0) for row in judged):
            return None, None
        levels = {
            id(row): row.claimed.middle if row.claimed.logs else math.log(row.claimed.value)
            for row in judged
            if row.claimed is not None
        }
    sides = tuple(DrawnSide(row.evidence.seeds, row.evidence.points, pooled, levels.get(id(row), 0.0)) for row in rows)
    low, high = (None if bound is None else math.log(bound) for bound in (cell.at_least, cell.at_most))
    design = Design(sides, _pairs(rows), low, high, beside, before)
    if lacking:
        return power(design, truth, measured), None
    return None, resolving(design) or 0


def _pairs(rows: Sequence[ClaimRow]) -> tuple[tuple[Pair, ...], ...]:
    """Of each row with a verdict the places of what it is judged by, as `_rows` has laid them out."""
    pairs: list[tuple[Pair, ...]] = []
    base: int | None = None
    beside: tuple[Pair, ...] = ()
    for place, row in enumerate(rows):
        if row.verdict is not None:
            pairs.append(((place, base), *beside))
        elif row.ratio is not None or (base is not None and row.of == rows[base].of):
            beside = ((place, base),)
        else:
            base = place
    return tuple(pairs)


def _rows(evidence: EvidenceReader, cell: ClaimCell) -> tuple[list[ClaimRow], dict[str, Direction]]:
    rows: list[ClaimRow] = []
    directions: dict[str, Direction] = {}
    paired_from = PAIRED_FROM if evidence.counts_looks else PAIRED_FROM_BEFORE
    beside: list[ClaimRow] = []
    """Of the ratio that the others are compared with: what it is against, and what it is of."""
    for plain in cell.plain:
        sides = [_labelled(cell, plain, side) for side in evidence.sides(plain)]
        directions[plain.metric] = evidence.direction
        base = sides.pop(0) if plain.against is not None else None
        rows += [] if base is None else [ClaimRow(base, plain, _mean(base), None, None, None)]
        if cell.ratios and cell.against is not None and not beside:
            assert base is not None
            ratio = _ratio(sides[0], base, paired_from)
            rows.append(ClaimRow(sides[0], plain, _mean(sides[0]), ratio, None, None))
            beside = rows[:]
        else:
            rows += [_row(plain, side, base, beside, paired_from) for side in sides]
    return rows, directions


def _labelled(cell: ClaimCell, plain: ClaimCell, side: Evidence) -> Evidence:
    """With the search that it is a part of, where a claim may have several."""
    return replace(side, label=f"{plain.search}: {side.label}") if cell.ratios and plain.search else side


def _mean(side: Evidence) -> Confidence | None:
    return mean_interval([*side.amounts.values()], [*side.left_out.values()])


def _ratio(side: Evidence, base: Evidence, paired_from: float) -> Confidence | None:
    left_out = (side.left_out or side.amounts, base.left_out or base.amounts)
    return ratio_interval(side.amounts, base.amounts, left_out, paired_from)


def _row(
    plain: ClaimCell, side: Evidence, base: Evidence | None, beside: Sequence[ClaimRow], paired_from: float
) -> ClaimRow:
    """Of a side that `_decided` gives a verdict; `beside` as in `_rows`."""
    figure = _mean(side)
    ratio = _ratio(side, base, paired_from) if base is not None else None
    claimed = figure if base is None else ratio
    if beside:
        other = beside[-1].ratio
        claimed = ratio.over(other) if ratio is not None and other is not None else None
    others = [*([] if base is None else [base]), *(row.evidence for row in beside)]
    named = [("", side), *((f"{other.label}: ", other) for other in others)]
    row = ClaimRow(side, plain, figure, ratio, claimed, "not resolved")
    for name, evidence in named:
        if evidence.lacking:
            return replace(row, claimed=None, why=name + evidence.lacking)
        if len(evidence.amounts) < FEWEST:
            seeds = f"{len(evidence.amounts)} seed{'s' if len(evidence.amounts) != 1 else ''}"
            return replace(row, claimed=None, why=f"{name}{seeds}, but at least {FEWEST} are needed")
    if claimed is None:
        return replace(row, why="a ratio needs values above 0")
    for name, evidence in named:
        if evidence.at_edge and not evidence.none_reached:
            why = f"{name}the best point is at an edge of the values tried, so widen {evidence.at_edge}"
            return replace(row, why=why)
    return row
