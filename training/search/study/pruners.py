"""Ending trials early, judged at equal samples. Pure: curves in, verdicts out.

Runs with different batch sizes and strategies validate at different moments. So the budget of a run is cut into `PARTS`
equal parts, the rungs; a trial's value at a rung is interpolated between the validations around it, and trials are
compared at rungs only. Optuna's pruners compare what was reported last instead: a trial that validates rarely is then
judged by a later, better value, and the others are compared with that. Where all trials validate at every rung the
verdicts here are those of Optuna's MedianPruner, SuccessiveHalvingPruner, HyperbandPruner and WilcoxonPruner.
"""

import binascii
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scalebook.training.experiments.search import AMOUNTS, SearchSpec
from scalebook.training.search.study.trials import TrialRecord, best

Curve = Sequence[tuple[int, float]]
"""(samples, value), ascending in samples."""

PARTS: Final = 27
ETA: Final = 3
"""Of `asha` and `hyperband`: one in three goes on from each of the rungs 1, 3 and 9 (of 27)."""
HALVINGS: Final = tuple(ETA**power for power in range(4) if ETA**power < PARTS)
STARTUP: Final = 5
"""Finished trials with a value at a rung that `median` needs before it ends one there."""
CONFIDENCE: Final = 0.1
"""`wilcoxon` ends a trial if its difference from the best one has a p-value below this."""


@dataclass(frozen=True)
class Rungs:
    """Rung k (1 ... 26) is at `k * part` samples; `part` is a 27th of a whole run's samples, rounded up."""

    part: int

    @classmethod
    def of(cls, samples_total: int) -> "Rungs":
        return cls(max(1, math.ceil(samples_total / PARTS)))

    def within(self, curve: Curve) -> range:
        """The rungs at which the curve has a value."""
        if not curve:
            return range(0)
        return range(max(1, math.ceil(curve[0][0] / self.part)), min(PARTS - 1, curve[-1][0] // self.part) + 1)

    def value(self, curve: Curve, rung: int) -> float | None:
        """The curve at the rung's samples, None before its first and after its last validation."""
        return value_at(curve, rung * self.part)


def value_at(curve: Curve, samples: int) -> float | None:
    """Interpolated between the two points around `samples`, None outside of the curve: linearly in log(samples).

    Learning curves fall fast at first and slowly later, so that a straight chord over samples lies above them: with it
    trials that validate rarely look worse than they are.
    """
    if not curve or not curve[0][0] <= samples <= curve[-1][0]:
        return None
    after = bisect_left(curve, samples, key=lambda point: point[0])
    (x1, y1) = curve[after]
    if x1 == samples:
        return y1
    (x0, y0) = curve[after - 1]
    share = math.log(samples / x0) / math.log(x1 / x0) if x0 > 0 else samples / x1
    return y0 + (y1 - y0) * share


def median(curve: Curve, rung: int, finished: Sequence[Curve], rungs: Rungs, lower: bool) -> bool:
    """Whether the best value so far is worse than the median of the finished trials at `rung` (Golovin et al. 2017)."""
    others = sorted(value for other_curve in finished if (value := rungs.value(other_curve, rung)) is not None)
    own = [
        value
        for earlier in rungs.within(curve)
        if earlier <= rung and (value := rungs.value(curve, earlier)) is not None
    ]
    if len(others) < STARTUP or not own:
        return False
    middle = (others[(len(others) - 1) // 2] + others[len(others) // 2]) / 2
    return min(own) > middle if lower else max(own) < middle


def halving(curve: Curve, rung: int, others: Sequence[Curve], rungs: Rungs, lower: bool) -> bool:
    """Whether the value at `rung` is outside of the best third of all that came there so far (ASHA, Li et al. 2020)."""
    own = rungs.value(curve, rung)
    if own is None:
        return False
    values = [value for other_curve in others if (value := rungs.value(other_curve, rung)) is not None]
    values = sorted([*values, own], reverse=not lower)
    worst = values[max(1, len(values) // ETA) - 1]
    return own > worst if lower else own < worst


def bracket(study: str, number: int) -> int:
    """Hyperband's bracket of a trial (Li et al. 2018): the index of its first rung in `HALVINGS`; the last has none.

    Shares as in the paper: the earlier a bracket begins to halve, the more trials it has.
    """
    brackets = len(HALVINGS) + 1
    shares = [math.ceil(brackets * ETA**left / (left + 1)) for left in reversed(range(brackets))]
    place = binascii.crc32(f"{study}_{number}".encode()) % sum(shares)
    for index, share in enumerate(shares):
        place -= share
        if place < 0:
            return index
    raise AssertionError("the place is below the sum of the shares")


def wilcoxon(own: Mapping[int, float], best: Mapping[int, float], lower: bool) -> bool:
    """Whether the values by seed are worse than the best trial's by the signed-rank test, one-sided, over equal seeds.

    Four seeds are the fewest that can decide at `CONFIDENCE`.
    """
    both = sorted(own.keys() & best.keys())
    if len(both) < 2 or not all(math.isfinite(value) for value in [*own.values(), *best.values()]):
        return False
    means = [math.fsum(values.values()) / len(values) for values in (own, best)]
    if (means[0] <= means[1]) if lower else (means[0] >= means[1]):
        return False
    from scipy.stats import wilcoxon as signed_rank

    differences = [own[seed] - best[seed] for seed in both]
    test = signed_rank(differences, alternative="greater" if lower else "less", zero_method="zsplit")
    return bool(test.pvalue < CONFIDENCE)


class Judge:
    """Remembers how far each trial was judged: a trial that passed a rung is not judged there again."""

    def __init__(self, spec: SearchSpec, study: str) -> None:
        self.spec, self.study = spec, study
        self.lower = next((objective.lower for objective in spec.objectives if objective.name not in AMOUNTS), True)
        """Whether less of the curves' metric is better: the first objective that is a metric, else a loss."""
        self._rung: dict[int, int] = {}
        self._ended: set[int] = set()
        self._before: dict[int, int] = {}

    def take_up(self, records: Sequence[TrialRecord]) -> None:
        """Take over the running trials of an earlier driver: the rungs that they passed, but for the last, are
        judged."""
        self._before = {
            record.number: record.curve[-1][0] for record in records if record.state == "running" and record.curve
        }

    @property
    def by_rungs(self) -> bool:
        return self.spec.pruner in ("median", "asha", "hyperband") and len(self.spec.objectives) == 1

    @property
    def by_seeds(self) -> bool:
        return self.spec.pruner == "wilcoxon" and len(self.spec.objectives) == 1

    def by_seed_values(self, number: int, records: Sequence[TrialRecord]) -> bool:
        """Whether the trial's seeds are worse than the same seeds of the best finished trial."""
        leader = best(records, self.spec)
        if leader is None:
            return False
        return wilcoxon(records[number].seed_values, leader.seed_values, self.spec.objectives[0].lower)

    def at_rungs(self, number: int, records: Sequence[TrialRecord], rungs: Rungs) -> bool:
        """Judge the rungs that the curve passed since the last call, in order; once True it stays so."""
        curve = records[number].curve
        self._rung.setdefault(number, self._before.get(number, 0) // rungs.part - 1)
        for rung in rungs.within(curve):
            if number in self._ended:
                break
            if rung > self._rung[number]:
                self._rung[number] = rung
                if self._behind(number, rung, records, rungs):
                    self._ended.add(number)
        return number in self._ended

    def _behind(self, number: int, rung: int, records: Sequence[TrialRecord], rungs: Rungs) -> bool:
        curve = records[number].curve
        if self.spec.pruner == "median":
            finished = [record.curve for record in records if record.state == "finished"]
            return median(curve, rung, finished, rungs, self.lower)
        others = [record for record in records if record.number != number and record.curve]
        if self.spec.pruner == "asha":
            judged_at = HALVINGS
        else:
            own_bracket = bracket(self.study, number)
            judged_at = HALVINGS[own_bracket:]
            others = [record for record in others if bracket(self.study, record.number) == own_bracket]
        if rung not in judged_at:
            return False
        return halving(curve, rung, [record.curve for record in others], rungs, self.lower)
