"""Puts the times that an earlier run has measured into the clock of a simulated one: `{kind: recorded, run: ID}`.

A gradient's time is what a worker needs for itself from one push to the next (fetching, forward, backward, logging); a
server's time is how long a push keeps a shard busy. Both become a hundred equally likely values with the measured mean
and tail, and are then part of the run's own config.
"""

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from scalebook.training.base import ConfigError
from scalebook.training.base.files import BrokenRecord, records
from scalebook.training.engine.coordination import measures
from scalebook.training.engine.rules import RECORDED
from scalebook.training.experiments import classes, key_of
from scalebook.training.jobs.job_folder import ENDED, JobFolder
from scalebook.training.tracking import names

if TYPE_CHECKING:  # loaded where a clock names a run: of the configs that are submitted few have one
    from scalebook.training.engine.rules import DurationSummary

FEWEST: Final = 50
"""The fewest gradients, or pushes, that make a distribution."""
PARTS: Final = ("gradient_s", "server_s")
DIGITS: Final = 6
"""Significant digits of each recorded value."""
REMEDY: Final = "Use a finished run of AsyncPS with real workers, or set the distribution yourself."


def read_recorded(config: Mapping[str, Any], find: Callable[[str], JobFolder]) -> dict[str, Any]:
    """The config, with values filled in for the recorded parts of its clock that have none yet. `find` returns the run
    with an id. ConfigError if there is no such run, or it has not measured this part."""
    completed = copy.deepcopy(dict(config))
    strategy = classes.mapping(classes.mapping(completed.get("trainer")).get("strategy"))
    clock = classes.mapping(classes.mapping(strategy.get("init_args")).get("clock"))
    for name in PARTS:
        part = clock.get(name)
        if isinstance(part, dict) and part.get("kind") == RECORDED and not part.get("values"):
            part |= _measured(part, name, find)
    return completed


def _measured(part: Mapping[str, Any], name: str, find: Callable[[str], JobFolder]) -> dict[str, Any]:
    key = key_of(f"clock.{name}")
    try:
        job = find(str(part.get("run")))
    except ConfigError as error:
        raise ConfigError(f"{key}.run", f"{error.problem.key} {error.problem.message}", REMEDY) from error
    timings = _timings(job, f"{key}.run")
    if name == "server_s":
        if part.get("worker") is not None:
            raise ConfigError(f"{key}.worker", "has no effect, because servers serve all workers", "Remove it.")
        took = timings.server
    else:
        took = _of_workers(timings, part.get("worker"), job, key)
    if took is None or took.count < FEWEST:
        unit = "pushes" if name == "server_s" else "gradients in a row"
        count = 0 if took is None else took.count
        raise ConfigError(f"{key}.run", f"{job.id[:8]} has timed {count} {unit}, fewer than {FEWEST}", REMEDY)
    values = [_rounded(value) for value in took.values]
    return {"run": job.id, "mean": _rounded(sum(values) / len(values)), "cv": _rounded(took.cv), "values": values}


def _timings(job: JobFolder, key: str) -> measures.Timings:

    if job.state() not in ENDED:
        raise ConfigError(
            key, f"{job.id[:8]} is {job.state()}, but a run records its timings only when it ends", REMEDY
        )
    try:
        timings = records.load(job.path / names.TIMINGS_JSON, measures.Timings)
    except BrokenRecord as error:
        raise ConfigError(key, f"{error.problem.key} {error.problem.message}", REMEDY) from error
    if timings is None:
        raise ConfigError(
            key, f"{job.id[:8]} has no timings, because it had no real workers that push and pull", REMEDY
        )
    return timings


def _of_workers(timings: measures.Timings, worker: Any, job: JobFolder, key: str) -> "DurationSummary | None":
    from scalebook.training.engine.rules import together

    if worker is None:
        return together([took for took in timings.workers if took is not None])
    if not isinstance(worker, int) or not 0 <= worker < len(timings.workers):
        numbers = f"0 to {len(timings.workers) - 1}"
        raise ConfigError(
            f"{key}.worker", f"{job.id[:8]} had no worker {worker}", f"Use {numbers}, or null for all workers."
        )
    return timings.workers[worker]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
