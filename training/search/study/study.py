"""A search's study: what is tried next and what came of it, stored so that a killed driver loses nothing.

Optuna decides and stores. One process writes, the driver; any number read. Every call here leaves the store in a state
from which `Study.open` goes on, and raises StorageLost where a database does not answer. Optuna itself is imported on
first use (0.4 s).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from scalebook.training.base import ConfigError, FailureClass
from scalebook.training.experiments.search import SearchSpec, decode_point
from scalebook.training.search.study import trials
from scalebook.training.search.study.pruners import Judge, Rungs
from scalebook.training.search.study.storage import (
    close_storage,
    mend,
    open_storage,
    store_answers,
    store_errors,
    sync_storage,
)
from scalebook.training.search.study.trials import Records, TrialRecord

if TYPE_CHECKING:
    import optuna
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial, Trial

__all__ = ["AskedTrial", "Study"]

SAMPLES_TOTAL = "samples_total"
"""User attribute of the study: the samples of a whole run, from which the rungs of pruning are made."""


@dataclass(frozen=True)
class AskedTrial:
    """A trial to be run, or running."""

    number: int
    point: dict[str, Any]


class Study:
    """A study as its driver writes it. For one thread, and for one writing process."""

    def __init__(self, storage: str, study: "optuna.Study", backend: "BaseStorage", spec: SearchSpec) -> None:
        from scalebook.training.search.study.sampling import sampler

        self.storage, self.spec = storage, spec
        self.mended = ""
        """What `open` repaired, for people."""
        self._study, self._kept = study, backend
        self._records = Records(spec.space)
        self._live: dict[int, Trial] = {}
        self._judge = Judge(spec, study.study_name)
        self._rungs: Rungs | None = None
        self._drawn = sampler(spec)
        study.sampler = self._drawn

    @classmethod
    def open(cls, storage: str, name: str, spec: SearchSpec, samples_total: int | None = None) -> "Study":
        """The study `name`, made where it is not there; gives it the points of `spec`.

        `storage` is `journal:PATH` or an Optuna URL. `samples_total`: how many samples a whole run takes; the first
        value stays. Without it pruning at equal samples begins when the first trial has finished. ConfigError where the
        store cannot be opened, the sampler is unknown, or the study has other objectives.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        mended = mend(storage)
        backend = open_storage(storage)
        directions = _directions(spec)
        with store_errors(storage):
            study = optuna.create_study(
                storage=backend,
                study_name=name,
                directions=directions,
                pruner=optuna.pruners.NopPruner(),
                load_if_exists=True,
            )
            if [direction.name.lower() for direction in study.directions] != directions:
                close_storage(backend)
                raise ConfigError(
                    "objective", "differs from the objective of the stored study", "Give the search another name."
                )
            self = cls(storage, study, backend, spec)
            self.mended = mended
            if samples_total is not None and SAMPLES_TOTAL not in study.user_attrs:
                study.set_user_attr(SAMPLES_TOTAL, samples_total)
            self._take_up()
            self._judge.take_up(self.records())
            for point in spec.points:
                self.give(point)
        return self

    def close(self) -> None:
        """Close the connections to a database. What was told is stored already."""
        close_storage(self._kept)

    def ask(self) -> AskedTrial:
        """The next trial, RUNNING from now on: a given point that waits, else what the sampler says.

        The same point is never asked twice while a finite space has others. ValueError when the grid is used up.
        """
        with store_answers(self.storage):
            trial = self._study.ask(fixed_distributions=self._drawn.space)
            self._live[trial.number] = trial
            sync_storage(self.storage)
            return AskedTrial(trial.number, decode_point(self.spec.space, trial.params))

    def give(self, point: Mapping[str, Any]) -> bool:
        """Queue `point` to be asked next; False if the study has it already. The sampler fills in what it leaves open.

        ConfigError if it is no point of this space.
        """
        encoded = self._encoded(point)
        with store_answers(self.storage):
            if self._has(encoded):
                return False
            self._study.enqueue_trial(encoded, user_attrs={trials.GIVEN: encoded})
            sync_storage(self.storage)
        return True

    def update_trial(
        self,
        number: int,
        *,
        runs: Mapping[int, str] | None = None,
        seconds: float | None = None,
        spread: float | None = None,
    ) -> None:
        """Store a trial's MLflow run ids by seed (added to earlier ones), seconds, and half of the interval.

        Before it is told how it ended: an ended trial is never changed.
        """
        with store_answers(self.storage):
            trial = self._frozen(number)
            if trial.state.is_finished():
                return
            if runs:
                earlier = trial.user_attrs.get(trials.RUNS, {})
                self._set(trial, trials.RUNS, {**earlier, **{str(seed): run for seed, run in runs.items()}})
            if seconds is not None:
                self._set(trial, trials.SECONDS, seconds)
            if spread is not None:
                self._set(trial, trials.SPREAD, spread)

    def report(self, number: int, samples: int, value: float) -> None:
        """A point of the trial's curve: of the metric that pruning goes by, from the first of its seeds.

        A second value at the same samples is ignored, and so is one that is not finite.
        """
        with store_answers(self.storage):
            trial = self._frozen(number)
            if math.isfinite(value) and not trial.state.is_finished() and samples not in trial.intermediate_values:
                self._kept.set_trial_intermediate_value(trial._trial_id, samples, value)

    def seed_value(self, number: int, index: int, value: float) -> None:
        """The first objective of the trial's seed number `index` (from 0), for the pruner `wilcoxon`."""
        with store_answers(self.storage):
            trial = self._frozen(number)
            if not trial.state.is_finished():
                earlier = trial.user_attrs.get(trials.SEED_VALUES, {})
                self._set(trial, trials.SEED_VALUES, {**earlier, str(index): value})

    def should_prune(self, number: int) -> bool:
        """Whether to end the trial, by what was reported; then it stays so. Never with two objectives."""
        if self._judge.by_seeds:
            return self._judge.by_seed_values(number, self.records())
        if not self._judge.by_rungs or (rungs := self._rungs_of_study()) is None:
            return False
        return self._judge.at_rungs(number, self.records(), rungs)

    def finish(self, number: int, values: Sequence[float]) -> None:
        """Note that a trial ended well: one value for each objective, infinite where a target was missed; NaN counts as
        diverged."""
        if any(math.isnan(value) for value in values):
            self.infeasible(number, FailureClass.DIVERGED.value, "the objective is NaN")
        else:
            self._tell(number, "COMPLETE", values=[float(value) for value in values])

    def prune(self, number: int, cause: str) -> None:
        self._tell(number, "PRUNED", {"state": "pruned", "cause": cause})

    def infeasible(self, number: int, failure: str, cause: str) -> None:
        """End a trial whose point cannot train: the sampler keeps away from it."""
        self._tell(number, "PRUNED", {"state": "infeasible", "failure": failure, "cause": cause})

    def fail(self, number: int, failure: str, cause: str) -> None:
        """End a trial whose run failed, which says nothing of the point: the sampler learns nothing."""
        self._tell(number, "FAIL", {"state": "failed", "failure": failure, "cause": cause})

    def running(self) -> list[AskedTrial]:
        """Trials that have been asked and have not ended, also by an earlier driver."""
        with store_answers(self.storage):
            return [
                AskedTrial(trial.number, decode_point(self.spec.space, trial.params))
                for trial in self._all()
                if trial.state.name == "RUNNING"
            ]

    def records(self) -> list[TrialRecord]:
        """All trials, by number."""
        with store_answers(self.storage):
            return self._records.of(self._all())

    def exhausted(self) -> bool:
        """Whether every point of a finite space has been asked; never in a space without end."""
        combinations = self._drawn.combinations
        with store_answers(self.storage):
            if combinations is None or any(trial.state.name == "WAITING" for trial in self._all()):
                return False
            return combinations.free(self._drawn.tried_points(self._study), {}) is None

    def _take_up(self) -> None:
        """Draw the rest of points that a killed driver had begun to ask."""
        from optuna.trial import Trial

        for frozen in self._all():
            if frozen.state.name == "RUNNING" and frozen.params.keys() < self._drawn.space.keys():
                self._drawn.draw_rest(Trial(self._study, frozen._trial_id))

    def _tell(
        self, number: int, state: str, outcome: dict[str, str] | None = None, values: Sequence[float] | None = None
    ) -> None:
        """Tell Optuna how a trial ended, once: a trial that has ended is not changed."""
        from optuna.trial import TrialState

        with store_answers(self.storage):
            trial = self._frozen(number)
            if trial.state.is_finished():
                return
            if outcome:
                self._set(trial, trials.OUTCOME, outcome)
                # With two objectives TPE cannot order pruned trials by their curves (Optuna 5.0 raises RuntimeError).
                avoided = outcome["state"] == "infeasible" or len(self.spec.objectives) > 1
                if avoided and state == "PRUNED" and not trial.constraints:
                    self._trial(trial).set_constraint("infeasible", 1.0)
            self._study.tell(number, values, TrialState[state])
            sync_storage(self.storage)
        self._live.pop(number, None)

    def _trial(self, frozen: "FrozenTrial") -> "Trial":
        from optuna.trial import Trial

        return self._live.get(frozen.number) or Trial(self._study, frozen._trial_id)

    def _frozen(self, number: int) -> "FrozenTrial":
        return self._kept.get_trial(self._kept.get_trial_id_from_study_id_trial_number(self._study._study_id, number))

    def _all(self) -> "list[FrozenTrial]":
        return self._study.get_trials(deepcopy=False)

    def _set(self, trial: "FrozenTrial", name: str, value: Any) -> None:
        self._kept.set_trial_user_attr(trial._trial_id, name, value)

    def _encoded(self, point: Mapping[str, Any]) -> dict[str, Any]:
        names = [dimension.name for dimension in self.spec.space]
        if unknown := point.keys() - set(names):
            raise ConfigError(
                f"points.{min(unknown)}",
                "is not a dimension",
                f"Use one of the dimensions of this search: {', '.join(names)}.",
            )
        encoded = {}
        for name, value in point.items():
            dimension = self.spec.dimension(name)
            try:
                encoded[name] = dimension.encode(value)
            except ValueError as error:
                raise ConfigError(
                    f"points.{name}",
                    str(error),
                    "Choose a value within the space, or start a new search with a wider space.",
                ) from error
        return encoded

    def _has(self, encoded: dict[str, Any]) -> bool:
        """Whether some trial has this point; part of a point only equals the same part, given before."""
        if encoded.keys() == self._drawn.space.keys():
            return self._drawn.key_of(encoded) in self._drawn.tried_points(self._study)
        return any(trial.user_attrs.get(trials.GIVEN) == encoded for trial in self._all())

    def _rungs_of_study(self) -> Rungs | None:
        if self._rungs is None:
            with store_answers(self.storage):
                total = self._study.user_attrs.get(SAMPLES_TOTAL)
                if total is None:
                    finished = [
                        record.curve for record in self.records() if record.state == "finished" and record.curve
                    ]
                    if not finished:
                        return None
                    total = finished[0][-1][0]
                    self._study.set_user_attr(SAMPLES_TOTAL, total)
            self._rungs = Rungs.of(total)
        return self._rungs


def _directions(spec: SearchSpec) -> list[Literal["minimize", "maximize"]]:
    return ["minimize" if objective.lower else "maximize" for objective in spec.objectives]
