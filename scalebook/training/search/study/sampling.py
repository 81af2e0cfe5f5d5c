"""How points are drawn: Optuna's samplers, seeded by trial, no point twice. Imports Optuna: only within functions."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from scalebook.training.search.study.trials import GIVEN

Key = tuple[Any, ...]
"""The encoded values of a point, in the order of the space; floats to 12 digits."""
TRIES = 20


class Combinations:
    """All points of a finite space, in an order that the seed fixes. `values`: the encoded values of each dimension."""

    def __init__(self, values: Mapping[str, Sequence[Any]], seed: int) -> None:
        self.values = {name: list(of) for name, of in values.items()}
        self.size = 1
        for of in self.values.values():
            self.size *= len(of)
        self._seed = seed
        self._first = 0
        self._order: Sequence[int] | None = None

    def free(self, taken: set[Key], fixed: Mapping[str, Any]) -> dict[str, Any] | None:
        """The first point that is not taken and agrees with `fixed`; None when there is none left."""
        for place in range(self._first, self.size):
            point = self._at(place)
            if key(point.values()) in taken:
                if place == self._first:  # trials are never taken back, so the head of the order is done with
                    self._first += 1
                continue
            if all(point[name] == value for name, value in fixed.items()):
                return point
        return None

    def _at(self, place: int) -> dict[str, Any]:
        if self._order is None:
            import numpy as np

            self._order = np.random.default_rng(self._seed).permutation(self.size).tolist()
        index = self._order[place]
        point = {}
        for name, of in self.values.items():
            index, digit = divmod(index, len(of))
            point[name] = of[digit]
        return point


def key(values: Iterable[Any]) -> Key:
    return tuple(float(f"{value:.12g}") if isinstance(value, float) else value for value in values)


def seed_of(seed: int, number: int, attempt: int = 0) -> int:
    """32 bits that depend on the search's seed, the trial's number and the attempt, and on nothing else."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}/{attempt}".encode()).digest()[:4], "big")


class PointSampler(BaseSampler):
    """The whole point of a trial at once.

    The random stream begins anew for each trial with a seed of its number: what is drawn depends on the search's seed,
    the number and the trials so far, so that a restarted driver neither repeats draws nor changes the next. A point
    that is there already is drawn again; after `TRIES` draws a finite space gives one that is left over. The grid is
    the case without draws.
    """

    def __init__(
        self,
        space: Mapping[str, BaseDistribution],
        make: Callable[[int], BaseSampler] | None,
        related: Sequence[str],
        combinations: Combinations | None,
        seed: int,
    ) -> None:
        """`make` builds Optuna's sampler from a seed; it draws the dimensions `related` together, the others alone."""
        self.space = dict(space)
        self._make = make
        self._related = {name: space[name] for name in related if not space[name].single()}
        self.combinations = combinations
        self._seed = seed
        self._keys: dict[int, Key] = {}  # by trial; a whole point never changes

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of all dimensions; what is fixed already (given, or drawn before a crash) is kept."""
        fixed = {**trial.user_attrs.get(GIVEN, {}), **trial.params}
        if fixed.keys() >= self.space.keys():
            return {}
        taken = self.taken(study, but=trial.number)
        point: dict[str, Any] | None = None
        for attempt in range(TRIES if self._make else 0):
            point = {**self._draw(study, trial, attempt), **fixed}
            if self.key_of(point) not in taken:
                return point
        left = self.combinations.free(taken, fixed) if self.combinations else None
        if left is None and point is None:
            raise ValueError("every point of the grid has been asked")
        return left or point or {}

    def _draw(self, study: Study, trial: FrozenTrial, attempt: int) -> dict[str, Any]:
        assert self._make is not None
        sampler = self._make(seed_of(self._seed, trial.number, attempt))
        point = sampler.sample_relative(study, trial, self._related) if self._related else {}
        for name, distribution in self.space.items():
            if name not in point:
                point[name] = sampler.sample_independent(study, trial, name, distribution)
        return point

    def taken(self, study: Study, but: int | None = None) -> set[Key]:
        """The points of all trials, whatever became of them, except number `but` and those not drawn whole."""
        for trial in study.get_trials(deepcopy=False):
            if trial.number not in self._keys:
                point = {**trial.user_attrs.get(GIVEN, {}), **trial.params}
                if point.keys() >= self.space.keys():
                    self._keys[trial.number] = self.key_of(point)
        return {of for number, of in self._keys.items() if number != but}

    def key_of(self, point: Mapping[str, Any]) -> Key:
        return key(point[name] for name in self.space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise AssertionError(f"{param_name} is drawn with the others")
