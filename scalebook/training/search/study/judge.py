"""Whether a trial is ended early: the pruner that a search names, over the records of its trials."""

from collections.abc import Sequence

from scalebook.training.config.search.types import AMOUNTS, SearchSpec
from scalebook.training.search.study import pruners
from scalebook.training.search.study.pruners import Rungs
from scalebook.training.search.study.trials import TrialRecord, best


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
        """Running trials of a driver before this one: they stood at the rungs they passed, but for the last."""
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
        return pruners.wilcoxon(records[number].seed_values, leader.seed_values, self.spec.objectives[0].lower)

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
            return pruners.median(curve, rung, finished, rungs, self.lower)
        others = [record for record in records if record.number != number and record.curve]
        if self.spec.pruner == "asha":
            judged_at = pruners.HALVINGS
        else:
            mine = pruners.bracket(self.study, number)
            judged_at = pruners.HALVINGS[mine:]
            others = [record for record in others if pruners.bracket(self.study, record.number) == mine]
        if rung not in judged_at:
            return False
        return pruners.halving(curve, rung, [record.curve for record in others], rungs, self.lower)
