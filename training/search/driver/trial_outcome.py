"""Judges a trial by its runs: it goes on, is run again, or has ended."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from scalebook.training.base import FailureClass
from scalebook.training.experiments.search import Objective, SearchSpec
from scalebook.training.jobs import UNWATCHED, JobFolder
from scalebook.training.search.driver.trial_jobs import CurveTail, Trial
from scalebook.training.search.study.own_values import quality
from scalebook.training.tracking import estimate, names

PRUNED: Final = "pruned"
"""Beginning of the cause of a run that was ended because others are better."""

IMPOSSIBLE: Final = (FailureClass.OUT_OF_MEMORY.value, FailureClass.DIVERGED.value)
"""Failures that say something of the point itself; any other says something of this one run."""

NO_FAULT_OF_THE_RUN: Final = (FailureClass.DISK_FULL.value, FailureClass.BROKEN_RECORD.value)

BY_HAND: Final = "stopped"
"""Failure of a trial whose run a person stopped, while the search went on."""


@dataclass(frozen=True)
class TrialEnd:
    """How a trial ended. `values` are means over its seeds, one for each objective; `spread` of the first one."""

    state: Literal["finished", "pruned", "infeasible", "failed"]
    values: tuple[float, ...] = ()
    spread: float | None = None
    seconds: float | None = None
    """Of training, mean over the seeds."""
    overhead: float | None = None
    """What the trial's processes took beyond training, mean over the seeds, s."""
    failure: str = ""
    cause: str = ""
    unlogged: str = ""
    """The objective that its finished runs have not logged: no other trial will."""


def outcome_of(job: JobFolder) -> Literal["going", "again", "finished", "pruned", "infeasible", "failed"]:
    """How one run of a trial stands. `again`: it was ended for reasons outside of it."""
    state = job.state()
    if state in ("waiting", "running", "stopping"):
        return "going"
    result = job.result()
    if result is None:  # the supervisor, when it comes back, says what it can say of it
        return "going"
    if result.status == "finished":
        return "finished"
    request = job.stop_request()
    by_hand = request is not None and request.by == "user"
    if result.status == "stopped":
        return "pruned" if result.cause.startswith(PRUNED) else "failed" if by_hand else "again"
    if result.failure in IMPOSSIBLE:
        return "infeasible"
    if result.failure in NO_FAULT_OF_THE_RUN or not job.claimed():  # or no process of it ever began
        return "again"
    return "again" if result.cause.endswith(UNWATCHED) and not by_hand else "failed"


def trial_end(trial: Trial, spec: SearchSpec, seeds: Sequence[int]) -> TrialEnd | None:
    """The trial's end, as soon as its runs decide it; None while any run of it is still wanted.

    A trial to be pruned is finished if all its seeds have trained to their end by then; it is pruned if a run of it has
    died, since that is not run again.
    """
    verdicts = {seed: outcome_of(job) for seed, job in trial.runs.items()}
    complete = all(verdicts.get(seed) == "finished" for seed in seeds)
    if trial.pruned and not complete and "going" not in verdicts.values():
        return TrialEnd("pruned", cause=trial.pruned, seconds=_mean([_seconds(job) for job in trial.runs.values()]))
    for seed in seeds:
        if (job := trial.runs.get(seed)) is None or (verdict := verdicts[seed]) in ("going", "again"):
            return None
        if verdict == "pruned":
            return TrialEnd("pruned", cause=trial.pruned or _cause(job), seconds=_seconds(job))
        if verdict in ("infeasible", "failed"):
            result = job.result()
            assert result is not None
            state: Literal["infeasible", "failed"] = "infeasible" if verdict == "infeasible" else "failed"
            return TrialEnd(state, failure=result.failure or BY_HAND, cause=result.cause, seconds=_seconds(job))
    return _finished([trial.runs[seed] for seed in seeds], spec)


def _finished(jobs: Sequence[JobFolder], spec: SearchSpec) -> TrialEnd:
    """An amount to a target that was missed is infinite; a metric comes before it, where there is a target."""
    seconds = _mean([_seconds(job) for job in jobs])
    columns: list[list[float]] = []
    for objective in spec.objectives:
        amounts = [value(job, objective, spec) for job in jobs]
        if all(amount is not None and math.isfinite(amount) for amount in amounts):
            columns.append([amount for amount in amounts if amount is not None])
        elif objective.name not in names.AXES:
            if any(_logs(job, objective.name) for job in jobs):
                cause, unlogged = f"{objective.name} is not a finite number", ""
            else:
                cause, unlogged = unlogged_words(objective.name, jobs), objective.name
            failure = FailureClass.CONFIGURATION.value
            return TrialEnd("failed", failure=failure, cause=cause, seconds=seconds, unlogged=unlogged)
        else:
            columns.append([math.inf])
    first = estimate(columns[0])
    return TrialEnd(
        "finished",
        tuple(math.fsum(column) / len(column) for column in columns),
        spread=first.half if first is not None else None,
        seconds=seconds,
        overhead=None if spec.is_simulated else _mean([_overhead(job) for job in jobs]),
    )


def value(job: JobFolder, objective: Objective, spec: SearchSpec) -> float | None:
    """An objective of a finished run: the best value of a metric, or an amount; None where there is none."""
    progress = job.progress()
    if progress is None:
        return None
    if objective.name not in names.AXES:
        metrics = progress.metrics
        if names.best(objective.name) not in metrics:
            return metrics.get(names.final(objective.name))
        curve = [point["metrics"].get(objective.name, math.nan) for point in CurveTail(job).news()]
        values = [value for value in curve if not math.isnan(value)]  # the run's own best may be of the other direction
        return (min if objective.lower else max)(values) if values else metrics[names.best(objective.name)]
    if spec.target is None:
        return float(getattr(progress, objective.name))
    return to_target(CurveTail(job).news(), objective.name, spec)


def to_target(curve: Sequence[Mapping[str, Any]], axis: str, spec: SearchSpec) -> float | None:
    """Where on `axis` the curve first is at the target or better; None where it never is."""
    metric, lower = quality(spec)
    for point in curve if metric else ():
        reached = point["metrics"].get(metric)
        if reached is not None and (reached <= spec.target if lower else reached >= spec.target):
            return float(point[axis])
    return None


def unlogged_words(metric: str, jobs: Sequence[JobFolder]) -> str:
    """Says what was logged instead, the closest name first."""
    logged = {name for job in jobs if (progress := job.progress()) for name in progress.metrics}
    return names.unlogged(metric, logged)


def _logs(job: JobFolder, metric: str) -> bool:
    progress = job.progress()
    return progress is not None and (names.best(metric) in progress.metrics or names.final(metric) in progress.metrics)


def _seconds(job: JobFolder) -> float | None:
    progress = job.progress()
    return None if progress is None else progress.seconds


def _overhead(job: JobFolder) -> float | None:
    started, result, seconds = job.started(), job.result(), _seconds(job)
    if started is None or result is None or seconds is None:
        return None
    return max(0.0, result.ended - started.started - seconds)


def _cause(job: JobFolder) -> str:
    result = job.result()
    return "" if result is None else result.cause


def _mean(amounts: Sequence[float | None]) -> float | None:
    numbers = [amount for amount in amounts if amount is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None
