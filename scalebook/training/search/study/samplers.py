"""Dimensions -> Optuna's distributions, and the sampler that a search names."""

import importlib.util
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalebook.training.config.search.keys import SAMPLERS
from scalebook.training.errors import ConfigError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import Trial

    from scalebook.training.config.search.space import Dimension
    from scalebook.training.config.search.types import SearchSpec
    from scalebook.training.search.study.sampling import PointSampler

FINITE = 100_000
"""Above so many combinations a space counts as endless: nobody tries them all."""


def distribution(dimension: "Dimension") -> "BaseDistribution":
    """What Optuna draws from: exponents for powers of two, indices for an ordered grid, labels for categories."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

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


def sampler(spec: "SearchSpec") -> "PointSampler":
    """The sampler that `spec` names, over its space. ConfigError where a package that it needs is missing."""
    from scalebook.training.search.study.sampling import Combinations, PointSampler

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


def draw_rest(trial: "Trial", space: "Mapping[str, BaseDistribution]") -> None:
    """Draw the dimensions that a trial lacks; those that it has stay."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    for name, distribution_ in space.items():
        if isinstance(distribution_, FloatDistribution):
            trial.suggest_float(name, distribution_.low, distribution_.high, log=distribution_.log)
        elif isinstance(distribution_, IntDistribution):
            trial.suggest_int(
                name, distribution_.low, distribution_.high, step=distribution_.step, log=distribution_.log
            )
        elif isinstance(distribution_, CategoricalDistribution):
            trial.suggest_categorical(name, distribution_.choices)


def _every(dimension: "Dimension") -> "Sequence[Any]":
    """All values of a dimension, encoded; () of a range of real numbers."""
    if dimension.kind in ("uniform", "log_uniform"):
        return ()
    if dimension.kind == "int":
        return range(int(dimension.low), int(dimension.high) + 1, dimension.step)
    return [dimension.encode(value) for value in dimension.grid()]


def _parts(
    spec: "SearchSpec", space: "Mapping[str, BaseDistribution]"
) -> "tuple[Callable[[int], BaseSampler] | None, list[str]]":
    """A builder of Optuna's sampler from a seed (None for the grid), and the dimensions that it draws together."""
    from optuna import samplers
    from optuna.distributions import CategoricalDistribution

    if spec.sampler == "grid":
        return None, []
    if spec.sampler == "random":
        return lambda seed: samplers.RandomSampler(seed=seed), []
    if spec.sampler == "tpe":  # multivariate with a liar for what runs; with two objectives each dimension alone
        return lambda seed: samplers.TPESampler(seed=seed), list(space) if len(spec.objectives) == 1 else []
    if spec.sampler == "qmc":
        return lambda seed: _sobol(spec.sampler_seed, seed), list(space)
    if spec.sampler == "cma-es":
        if importlib.util.find_spec("cmaes") is None:
            raise ConfigError(
                "sampler", "cma-es needs the package cmaes, which is not installed",
                "Install it (pip install cmaes), or write sampler: tpe.",
            )  # fmt: skip
        numeric = [
            name for name, distribution_ in space.items() if not isinstance(distribution_, CategoricalDistribution)
        ]
        from scalebook.training.search.study.cma import NumbersCmaEs

        return lambda seed: NumbersCmaEs(
            seed=seed, independent_sampler=samplers.RandomSampler(seed=seed), warn_independent_sampling=False
        ), numeric
    raise ConfigError("sampler", f"{spec.sampler!r} is none", f"Known samplers: {', '.join(SAMPLERS)}.")


def _sobol(sequence: int, seed: int) -> "BaseSampler":
    """The scrambled Sobol sequence of the search, of which the study counts how much is used."""
    from optuna.exceptions import ExperimentalWarning
    from optuna.samplers import QMCSampler, RandomSampler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # Optuna's word for "may change"; the tests will say so
        return QMCSampler(qmc_type="sobol", scramble=True, seed=sequence, independent_sampler=RandomSampler(seed=seed))
