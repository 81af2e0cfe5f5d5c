"""An answer as plain values, and its sentences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from scalebook.training.notebook import factor
from scalebook.training.notebook.claims import Confidence

Kind = Literal["measured", "simulated", "extrapolated"]
Figure = Literal["seconds", "samples", "bytes", "best"]
FIGURES: Final[tuple[Figure, ...]] = get_args(Figure)
HEADS: Final = {"seconds": "time", "samples": "samples", "bytes": "bytes", "best": "best value"}
DecidedBy = Literal["seconds", "samples", "best"]


@dataclass(frozen=True)
class AnswerRow:
    """One side. Ratios are to the first side."""

    cell: str
    words: str
    kind: Kind = "measured"
    seeds: int = 0
    rate: float | None = None
    batch: int | None = None
    ratios: Mapping[Figure, Confidence] = field(default_factory=dict)
    """By figure, those that are known."""
    verdict: str = ""
    why: str = ""
    """Why there is no ratio, or it is not resolved."""
    missed: bool = False
    """None of its runs reached the target."""
    same: bool = False
    """It has the config of the first side, so that no run tells them apart."""
    own_rate: float | None = None
    """The learning rate as written, of a side whose rate was searched."""
    edges: Sequence[str] = ()
    """How its point is at an edge of those that were tried."""


@dataclass(frozen=True)
class PlannedRow:
    """What the planner expects of more workers than were run, as a multiple of one process."""

    words: str
    workers: int
    low: float
    high: float


@dataclass(frozen=True)
class Findings:
    """`headline` is one sentence; `sentences` say more."""

    question: str
    headline: str
    sentences: Sequence[str] = ()
    rows: Sequence[AnswerRow] = ()
    planned: Sequence[PlannedRow] = ()
    figure: DecidedBy = "seconds"
    metric: str = ""
    target: float | None = None
    state: Literal["not begun", "under way", "answered", "not resolved"] = "not begun"
    more_seeds: int = 0
    """Seeds of each side that would resolve it, if its figures are as measured; 0 where it is resolved, or nothing
    would."""
    more_s: float | None = None
    """About how long these take."""


def decided_by(answer: Findings, row: AnswerRow) -> DecidedBy:
    """What decides about a side: of virtual workers the samples, since their seconds are of a declared clock."""
    return "samples" if answer.figure == "seconds" and row.kind == "simulated" else answer.figure


def times(ratio: Confidence) -> str:
    """`0.57x (0.52 to 0.63)`; where runs missed the target `more than 1.2x`."""
    if ratio.no_high or ratio.no_low:
        return f"{'more' if ratio.no_high else 'less'} than {factor(ratio.value)}x"
    return f"{factor(ratio.value)}x ({factor(ratio.low)} to {factor(ratio.high)})"


def plan_words(planned: Sequence[PlannedRow]) -> str:
    """What the planner expects of workers that this machine has no room for."""
    parts = [f"{row.words} {factor(row.low)}x to {factor(row.high)}x" for row in planned]
    return (
        "With as many cores as workers, the planner extrapolates these times per sample, relative to one process: "
        f"{'; '.join(parts)}."
    )


def sentence(answer: Findings, row: AnswerRow, baseline: AnswerRow) -> str:
    """`DDP × 2 reaches val/loss 0.3 in 0.57x (0.52 to 0.63) the time of one process, at learning rate 0.02.`"""
    figure = decided_by(answer, row)
    ratio = row.ratios[figure]
    rate = f", at learning rate {row.rate:g}" if row.rate is not None and answer.figure != "best" else ""
    subject = f"{row.words[:1].upper()}{row.words[1:]}"
    unclear = "" if row.verdict in ("supported", "refuted") else " This difference is not resolved."
    if figure == "best":
        return f"The best {answer.metric} of {row.words} is {times(ratio)} that of {baseline.words}.{unclear}"
    if figure == "seconds":
        also = f" It needs {times(row.ratios['samples'])} the samples." if "samples" in row.ratios else ""
        words = f"{subject} reaches {answer.metric} {answer.target:g} in {times(ratio)} the time of {baseline.words}"
        return f"{words}{rate}.{also}{unclear}"
    words = f"{subject} needs {times(ratio)} the samples of {baseline.words}"
    also = f" It sends and receives {times(row.ratios['bytes'])} the bytes." if "bytes" in row.ratios else ""
    return f"{words} to reach {answer.metric} {answer.target:g}{rate}.{also}{unclear}"


def rates_words(rows: Sequence[AnswerRow]) -> str:
    """At which learning rates sides were compared whose rates were searched; "" where none was."""
    parts = []
    for row in rows:
        if row.own_rate is None or row.rate is None:
            continue
        is_own = math.isclose(row.rate, row.own_rate, rel_tol=1e-3)
        instead = (
            "the rate in the config, which was the best" if is_own else f"instead of {row.own_rate:g} in the config"
        )
        parts.append(f"{row.words} {row.rate:g}, {instead}")
    return f"Learning rates: {'; '.join(parts)}." if parts else ""


NOTHING: Final = "-"


def table(answer: Findings) -> list[list[str]]:
    """The rows of the answer's table below its head. Ratios are to the first side."""
    figures = [figure for figure in FIGURES if any(figure in row.ratios for row in answer.rows)]
    rows = [["side", "rate", "seeds", *(f"{HEADS[figure]} x" for figure in figures), "kind", "verdict"]]
    for place, row in enumerate(answer.rows):
        cells = [_cell(row, figure) if place else "1" for figure in figures]
        rate = NOTHING if row.rate is None else f"{row.rate:.3g}"
        verdict = row.verdict or ("" if place else "baseline")
        rows.append([row.words, rate, str(row.seeds), *cells, row.kind, verdict])
    for planned in answer.planned:
        within = f"{factor(planned.low)} to {factor(planned.high)} per sample"
        cells = [within if figure == "seconds" else NOTHING for figure in figures]
        rows.append([planned.words, NOTHING, NOTHING, *cells, "extrapolated", ""])
    return rows


def _cell(row: AnswerRow, figure: Figure) -> str:
    if figure not in row.ratios:
        return NOTHING
    return times(row.ratios[figure]).replace("x", "").replace("more than ", "> ").replace("less than ", "< ")
