"""How points are drawn: dimensions as Optuna's distributions, and its samplers, seeded by trial, no point twice.

Imports Optuna (0.4 s): import this within functions where nothing need be drawn.
"""

import hashlib
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, QMCSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from scalebook.training.base import ConfigError
from scalebook.training.experiments.search import Dimension, SearchSpec, keys
from scalebook.training.search.study.trials import GIVEN

Key = tuple[Any, ...]
"""The encoded values of a point, in the order of the space; floats to 12 digits."""
TRIES = 20
FINITE = 100_000
"""A space with more combinations counts as endless: nobody tries them all."""


def distribution(dimension: Dimension) -> BaseDistribution:
    """What Optuna draws from: exponents for powers of two, indices for an ordered grid, labels for categories."""
    if dimension.kind in ("uniform", "log_uniform"):
        return FloatDistribution(dimension.low, dimension.high, log=dimension.kind == "log_uniform")
    if dimension.kind == "int":
        low, steps = int(dimension.low), int(dimension.high - dimension.low) // dimension.step
        return IntDistribution(low, low + steps * dimension.step, log=dimension.log, step=dimension.step)
    if dimension.kind == "powers_of_two":
        return IntDistribution(round(math.log2(dimension.low)), round(math.log2(dimension.high)))
    if dimension.kind == "grid":
        return IntDistribution(0, len(dimension.choices) - 1)
    return CategoricalDistribution(tuple(str(dimension.encode(choice)) for choice in dimension.choices))


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
    that was tried already is drawn again; after `TRIES` draws a finite space gives an untried one. The grid is the case
    without draws.
    """

    def __init__(
        self,
        space: Mapping[str, BaseDistribution],
        make: Callable[[int, int], BaseSampler] | None,
        related: Sequence[str],
        combinations: Combinations | None,
        seed: int,
    ) -> None:
        """`make` builds a sampler from a seed and the number of draws that were there already; it draws the dimensions
        `related` together, the others alone."""
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
        taken = self.tried_points(study, but=trial.number)
        point: dict[str, Any] | None = None
        for attempt in range(TRIES if self._make else 0):
            point = {**self._draw(study, trial, attempt), **fixed}
            if self.key_of(point) not in taken:
                return point
        left = self.combinations.free(taken, fixed) if self.combinations else None
        if left is None and point is None:
            raise ValueError("every point of the grid has been tried")
        return left or point or {}

    def _draw(self, study: Study, trial: FrozenTrial, attempt: int) -> dict[str, Any]:
        assert self._make is not None
        sampler = self._make(seed_of(self._seed, trial.number, attempt), attempt)
        point = sampler.sample_relative(study, trial, self._related) if self._related else {}
        for name, distribution in self.space.items():
            if name not in point:
                point[name] = sampler.sample_independent(study, trial, name, distribution)
        return point

    def tried_points(self, study: Study, but: int | None = None) -> set[Key]:
        """The points of all trials, whatever became of them, except number `but` and those not drawn whole."""
        for trial in study.get_trials(deepcopy=False):
            if trial.number not in self._keys:
                point = {**trial.user_attrs.get(GIVEN, {}), **trial.params}
                if point.keys() >= self.space.keys():
                    self._keys[trial.number] = self.key_of(point)
        return {of for number, of in self._keys.items() if number != but}

    def key_of(self, point: Mapping[str, Any]) -> Key:
        return key(point[name] for name in self.space)

    def draw_rest(self, trial: Trial) -> None:
        """Draw the dimensions that a trial lacks; those that it has stay."""
        for name, drawn in self.space.items():
            if isinstance(drawn, FloatDistribution):
                trial.suggest_float(name, drawn.low, drawn.high, log=drawn.log)
            elif isinstance(drawn, IntDistribution):
                trial.suggest_int(name, drawn.low, drawn.high, step=drawn.step, log=drawn.log)
            elif isinstance(drawn, CategoricalDistribution):
                trial.suggest_categorical(name, drawn.choices)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise AssertionError(f"{param_name} is sampled together with the other dimensions")


def sampler(spec: SearchSpec) -> PointSampler:
    """The sampler that `spec` names, over its space."""
    space = {dimension.name: distribution(dimension) for dimension in spec.space}
    make, related = _parts(spec, space)
    if make is None:
        values: dict[str, Sequence[Any]] = {
            dimension.name: [dimension.encode(of) for of in dimension.grid()] for dimension in spec.space
        }
    else:
        values = {dimension.name: _every(dimension) for dimension in spec.space}
    finite = make is None or 0 < math.prod(len(of) for of in values.values()) <= FINITE
    return PointSampler(
        space, make, related, Combinations(values, spec.sampler_seed) if finite else None, spec.sampler_seed
    )


def _every(dimension: Dimension) -> Sequence[Any]:
    """All values of a dimension, encoded; () of a range of real numbers."""
    if dimension.kind in ("uniform", "log_uniform"):
        return ()
    if dimension.kind == "int":
        return range(int(dimension.low), int(dimension.high) + 1, dimension.step)
    return [dimension.encode(value) for value in dimension.grid()]


def _parts(
    spec: SearchSpec, space: Mapping[str, BaseDistribution]
) -> tuple[Callable[[int, int], BaseSampler] | None, list[str]]:
    """What `PointSampler` calls `make` (None for the grid) and `related`."""
    if spec.sampler == "grid":
        return None, []
    if spec.sampler == "random":
        return lambda seed, _: RandomSampler(seed=seed), []
    if spec.sampler == "tpe":  # multivariate with a liar for what runs; with two objectives each dimension alone
        return lambda seed, _: TPESampler(seed=seed), list(space) if len(spec.objectives) == 1 else []
    if spec.sampler == "qmc":
        return lambda seed, _: _sobol(spec.sampler_seed, seed), list(space)
    if spec.sampler == "gp":
        from scalebook.training.search.study.gp import GaussianProcess

        # With another seed it proposes nearly the same: a second draw, of 0.3 s and more, would be there already too.
        return lambda seed, again: RandomSampler(seed=seed) if again else GaussianProcess(seed), list(space)
    raise ConfigError("sampler", f"{spec.sampler!r} is not a sampler", f"Known samplers: {', '.join(keys.SAMPLERS)}.")


def _sobol(sequence: int, seed: int) -> BaseSampler:
    """The scrambled Sobol sequence of the search, of which the study counts how much is used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # Optuna's word for "may change"; the tests will say so
        return QMCSampler(qmc_type="sobol", scramble=True, seed=sequence, independent_sampler=RandomSampler(seed=seed))
