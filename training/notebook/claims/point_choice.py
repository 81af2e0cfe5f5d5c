"""Chooses the point that stands for a part of a search, by what the choosing seeds have shown."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scalebook.training.experiments.search.space import Dimension
from scalebook.training.notebook.claims.intervals import Amount
from scalebook.training.search.study.trials import TrialRecord


@dataclass(frozen=True)
class SeedOutcome:
    """What a point showed with one seed. `best` value of the metric, smaller is better; 0 if none is read."""

    amount: Amount
    best: float = 0.0


def best_of(
    trials: Sequence[TrialRecord], results: Mapping[int, Sequence[SeedOutcome]], lower: bool, space: Sequence[Dimension]
) -> TrialRecord:
    """The best of the trials that are in `results`, by number, each with the same seeds; one at least.

    The best one reached the target with the most seeds; then it has the best mean figure over those (`lower`: the
    smaller). A run that missed has no figure: its amount says when it was ended, not how good it was. Amounts are as
    coarse as validations, and there is none if no seed reached the target; then the mean of the best values decides,
    then the distance to the middle of what was tried, so that the points on both sides of the best one are known, and
    then which was tried first.
    """

    def mark(trial: TrialRecord) -> tuple[int, float, float, float, int]:
        seeds = results[trial.number]
        reached = [seed.amount.value for seed in seeds if not seed.amount.censored]
        figure = statistics.fmean(reached) * (1 if lower else -1) if reached else 0.0
        best = statistics.fmean(seed.best for seed in seeds) if seeds else 0.0
        return len(seeds) - len(reached), figure, best, _from_middle(trial, trials, space), trial.number

    return min((trial for trial in trials if trial.number in results), key=mark)


def by_others(
    trials: Sequence[TrialRecord], results: Mapping[int, Sequence[SeedOutcome]], lower: bool, space: Sequence[Dimension]
) -> list[Amount]:
    """For each seed, in their order, the amount at the point that the other seeds choose, by `best_of`."""
    seeds = len(next(iter(results.values())))
    amounts = []
    for place in range(seeds):
        others = {number: [*seen[:place], *seen[place + 1 :]] for number, seen in results.items()}
        chosen = best_of(trials, others, lower, space)
        amounts.append(results[chosen.number][place].amount)
    return amounts


def tried(dimension: Dimension, trials: Sequence[TrialRecord]) -> list[float]:
    """The values that were tried, in order; none of a dimension that has no order."""
    return sorted({trial.point[dimension.name] for trial in trials}) if dimension.ordered else []


def _from_middle(trial: TrialRecord, trials: Sequence[TrialRecord], space: Sequence[Dimension]) -> float:
    """Ranks between its values and the middle ones, over all dimensions."""
    ranks = [(values.index(trial.point[dim.name]), len(values)) for dim in space if (values := tried(dim, trials))]
    return sum(abs(rank - (count - 1) / 2) for rank, count in ranks)
