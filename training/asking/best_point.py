"""The best point of a search for one side, and the target that follows from the baseline's best run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from scalebook.training.experiments.search import SearchSpec
from scalebook.training.notebook import best
from scalebook.training.notebook.claims import crossing
from scalebook.training.search import SearchFolder
from scalebook.training.search.study import TrialRecord, at_rest, read_study
from scalebook.training.tracking import MetricCurve, RunReader

REACHED_FROM: Final = 0.25
"""Part of the baseline's samples after which it is at the target: other sides have samples left to get there."""
MOSTLY: Final = 0.9
"""Share of the validations after that which are at the target: noisy values then reach it with other seeds, too."""

LUCK: Final = 2.5
"""Of two equal sides one is then called better in 4 % of questions; without this check in 11 %."""


@dataclass(frozen=True)
class BestPoint:
    """The best point of a search, and all points that were tried. `curve` is that of its run."""

    point: Mapping[str, Any]
    curve: MetricCurve
    tried: Sequence[Mapping[str, Any]]


def best_point(
    reader: RunReader, folder: SearchFolder, spec: SearchSpec, metric: str, lower: bool, target: float | None,
    axis: Literal["seconds", "samples"] = "samples",
) -> BestPoint | None:  # fmt: skip
    """The point that reaches the target with the fewest samples, or in the fewest seconds; where none does, or without
    a target, the one with the best value of the metric. None where no run has finished."""
    marked: list[tuple[tuple[bool, float, float], BestPoint]] = []
    tried = tried_points(folder, spec)
    for point, curve in finished(reader, folder, spec, metric):
        value = best(curve, lower)
        if value is None or not math.isfinite(value):
            continue
        amount = crossing(*curve.on(axis), target, lower) if target is not None else None
        missed = amount is None or amount.censored
        mark = (missed, math.inf if amount is None or missed else amount.value, value if lower else -value)
        marked.append((mark, BestPoint(point, curve, tried)))
    return min(marked, key=lambda pair: pair[0])[1] if marked else None


def best_curves(
    reader: RunReader, folder: SearchFolder, spec: SearchSpec, metric: str, lower: bool
) -> list[MetricCurve]:
    """Those of the two runs with the best values: of the best one alone nobody knows whether it was lucky."""
    ranked = []
    for _, curve in finished(reader, folder, spec, metric):
        value = best(curve, lower)
        if value is not None and math.isfinite(value):
            ranked.append((value, curve))
    return [curve for _, curve in sorted(ranked, key=lambda pair: pair[0], reverse=not lower)[:2]]


def tried_points(folder: SearchFolder, spec: SearchSpec) -> Sequence[Mapping[str, Any]]:
    """All points that were tried, however their runs ended."""
    return [trial.point for trial in _trials(folder, spec)]


def finished(
    reader: RunReader, folder: SearchFolder, spec: SearchSpec, metric: str
) -> list[tuple[Mapping[str, Any], MetricCurve]]:
    """The points whose runs have finished, with their curves."""
    trials = [trial for trial in _trials(folder, spec) if trial.state == "finished" and trial.runs]
    return [(trial.point, reader.curve(next(iter(trial.runs.values())), metric)) for trial in trials]


def may_undo(one_run: float, expected: float, spread: float, margin: float) -> bool:
    """Whether a point that was not chosen, by its one run, may be better than the chosen one by `margin`: if that run
    was unlucky by LUCK standard deviations. All are logarithms, the lower the better."""
    return expected - one_run + LUCK * spread >= margin


def all_diverged(folder: SearchFolder, spec: SearchSpec) -> Sequence[Mapping[str, Any]]:
    """The points that were tried, if every run at them became infinite or ran out of memory; else none."""
    trials = _trials(folder, spec)
    return [trial.point for trial in trials] if all(trial.state == "infeasible" for trial in trials) else []


def first_failure(folder: SearchFolder, spec: SearchSpec) -> str:
    """Why the first run that has failed did; "" if none has."""
    return next((trial.cause for trial in _trials(folder, spec) if trial.cause), "")


def run_ids(folder: SearchFolder, spec: SearchSpec) -> list[str]:
    """The runs that have finished."""
    return [run for trial in _trials(folder, spec) if trial.state == "finished" for run in trial.runs.values()]


def _trials(folder: SearchFolder, spec: SearchSpec) -> Sequence[TrialRecord]:
    request = folder.request()
    return at_rest(read_study(request.storage, request.study, spec))


def target_of(curve: MetricCurve, lower: bool, share: float = 1.0) -> float | None:
    """What nearly all validations of the run reach after REACHED_FROM of its samples (or of a `share` of them, which is
    what others train). Three digits, rounded towards what is easier. None for fewer than two validations."""
    samples, values = curve.on("samples")
    if len(values) < 2:
        return None
    last = max(share * samples[-1], samples[1])
    first = max(REACHED_FROM * last, samples[1])  # the first validation may be later than the crossing
    later = sorted(
        value if lower else -value
        for sample, value in zip(samples, values, strict=True)
        if first <= sample <= last and math.isfinite(value)
    )
    if not later:
        return None
    reached = later[math.ceil(MOSTLY * len(later)) - 1]
    if reached == 0:
        return reached
    digits = 2 - math.floor(math.log10(abs(reached)))
    easier = math.ceil(round(reached * 10.0**digits, 6)) / 10.0**digits
    return easier if lower else -easier
