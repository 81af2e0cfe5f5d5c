"""Optuna's Gaussian process over all trials of a study. Imports Optuna: only for use inside functions."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from typing_extensions import override

from scalebook.training.search.study.trials import GIVEN

STARTUP = 10
"""Trials that are drawn at random before the Gaussian process is used; Optuna's default."""


class GaussianProcess(BaseSampler):
    """Optuna's `GPSampler` over a copy of the study in memory, with values for trials that have none.

    `GPSampler` learns only from trials that are complete, so it would propose a point that diverges, or its neighbour,
    again and again. In the copy such a point has the worst finite value of each objective, as has a missed target. A
    pruned trial has its last value, but none better than the median, since it was ended for being behind. A trial that
    runs or waits counts as running, so that the next point keeps a distance from it. What failed is left out.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = RandomSampler(seed=seed)

    @override
    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        raise AssertionError("the space is told")

    @override
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A whole point of `search_space`; {} while fewer than `STARTUP` trials have ended."""
        others = [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]
        ended = _ended(others, study.directions, search_space)
        if len(ended) < STARTUP:
            return {}
        copy = optuna.create_study(
            directions=study.directions,
            sampler=GPSampler(seed=self._seed, n_startup_trials=STARTUP, warn_independent_sampling=False),
        )
        copy.add_trials(ended + _under_way(others, search_space))
        return copy.ask(fixed_distributions=search_space).params

    @override
    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)


def _ended(
    trials: Sequence[FrozenTrial], directions: Sequence[StudyDirection], space: dict[str, BaseDistribution]
) -> list[FrozenTrial]:
    """The trials from which one can learn, each with finite values; [] where none is complete with finite values."""
    complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    worst: list[float] = []
    middle: list[float] = []
    for place, direction in enumerate(directions):
        finite = [trial.values[place] for trial in complete if math.isfinite(trial.values[place])]
        if not finite:
            return []
        worst.append(max(finite) if direction is StudyDirection.MINIMIZE else min(finite))
        middle.append(statistics.median(finite))
    learnable = []
    for trial in trials:
        if trial.state is TrialState.COMPLETE:
            values = [value if math.isfinite(value) else bad for value, bad in zip(trial.values, worst, strict=True)]
        elif trial.state is TrialState.PRUNED and (trial.constraints or not trial.intermediate_values):
            values = worst
        elif trial.state is TrialState.PRUNED:
            behind = max if directions[0] is StudyDirection.MINIMIZE else min
            values = [behind(trial.intermediate_values[max(trial.intermediate_values)], middle[0])]
        else:
            continue
        params = {name: trial.params[name] for name in space}
        learnable.append(create_trial(params=params, distributions=space, values=values))
    return learnable


def _under_way(trials: Sequence[FrozenTrial], space: dict[str, BaseDistribution]) -> list[FrozenTrial]:
    points = [
        {**trial.user_attrs.get(GIVEN, {}), **trial.params}
        for trial in trials
        if trial.state in (TrialState.RUNNING, TrialState.WAITING)
    ]
    return [
        create_trial(state=TrialState.RUNNING, params={name: point[name] for name in space}, distributions=space)
        for point in points
        if point.keys() >= space.keys()
    ]
