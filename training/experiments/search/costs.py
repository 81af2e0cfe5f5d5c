"""What a search will take: "this starts 60 runs, about 12 minutes"."""

import itertools
import math
from dataclasses import dataclass
from typing import Any, Final

from scalebook.training.experiments.search.point import grid_points, is_single, put_strategy
from scalebook.training.experiments.search.search_checks import candidates
from scalebook.training.experiments.search.search_settings import MOST_POINTS
from scalebook.training.experiments.search.types import SearchSpec

MOST_COUNTED: Final = 1000
"""Workers and strategies are averaged over so many combinations at most."""


ROUNDING: Final = 1e-6
"""Tolerance of sums: three thirds are one."""


@dataclass(frozen=True)
class Cost:
    """`minutes` is None if it is unknown how long a run takes; never more than the search's own limit."""

    runs: int
    seconds_a_run: float | None
    minutes: float | None
    side_by_side: int
    """Runs at a time, of those with the mean number of workers."""


def cost(spec: SearchSpec, cores: int, seconds_a_run: float | None, gpus: int = 0) -> Cost:
    """What `spec` starts on a machine with so many cores and GPUs.

    `seconds_a_run` is what runs of its experiment took, None where there are none; a time budget for each trial is used
    instead of it. Pruned and failed trials take less, so it is an upper estimate where there are any.
    """
    runs = trials_wanted(spec) * spec.seeds
    base = spec.experiment
    workers = _mean_workers(spec)
    room = cores / max(1.0, workers * _mean_threads(spec))
    if gpus and base.accelerator != "cpu":
        wanted = workers if spec.has("workers") else min(base.strategy.devices, workers)
        room = min(room, gpus / min(gpus, wanted) * int(1 / base.gpu_share + ROUNDING))
    seconds = spec.seconds_per_trial if spec.seconds_per_trial is not None else seconds_a_run
    # a run that takes all cores, or more, is alone; runs of one core fill the machine
    at_a_time = 1.0 if spec.exclusive else min(float(runs), max(1.0, room))
    minutes = None if seconds is None else runs * seconds / at_a_time / 60
    if spec.minutes is not None:
        minutes = spec.minutes if minutes is None else min(minutes, spec.minutes)
    return Cost(runs, seconds, minutes, int(at_a_time))


def trials_wanted(spec: SearchSpec) -> int:
    """The number of trials asked for, or of the grid's points where that is smaller."""
    if spec.sampler != "grid" or any(dimension.grid_size() is None for dimension in spec.space):
        return spec.trials
    if math.prod(dimension.grid_size() or 1 for dimension in spec.space) > MOST_POINTS:
        return spec.trials  # none such passes the check; it is never made
    return sum(1 for _ in itertools.islice(grid_points(spec), spec.trials))


def _mean_workers(spec: SearchSpec) -> float:
    """Processes of a trial, in the mean over the numbers of workers and the strategies: as many as workers, but one
    that simulates all of them."""
    own = spec.experiment.strategy.workers
    workers = candidates(spec.dimension("workers"))[:MOST_COUNTED] if spec.has("workers") else [own]
    strategies = spec.dimension("strategy").choices if spec.has("strategy") else (None,)
    single = sum(_is_one_process(strategy, spec) for strategy in strategies)
    return (single + (len(strategies) - single) * sum(workers) / len(workers)) / len(strategies)


def _mean_threads(spec: SearchSpec) -> float:
    threads = candidates(spec.dimension("threads"))[:MOST_COUNTED] if spec.has("threads") else [spec.experiment.threads]
    return sum(threads) / len(threads)


def _is_one_process(strategy: Any, spec: SearchSpec) -> bool:
    """Whether a trial under this strategy, None for the base's own, has a single process, whatever its workers."""
    trial = spec.experiment if strategy is None else put_strategy(spec.experiment, strategy)
    return is_single(strategy) or trial.strategy.is_simulated
