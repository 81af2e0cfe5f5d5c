"""Trials as the rest of Scalebook sees them: read from the study, judged, compared. Free of Optuna and torch."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from scalebook.training.experiments.search import Dimension, decode_point

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from scalebook.training.experiments.search import SearchSpec

State = Literal["waiting", "running", "finished", "pruned", "infeasible", "failed"]
STATES: tuple[State, ...] = ("finished", "pruned", "infeasible", "failed", "running", "waiting")
"""In the order of their colours everywhere."""
ENDED: tuple[State, ...] = ("finished", "pruned", "infeasible", "failed")

# User attributes of an Optuna trial.
GIVEN = "given"
"""The point that a person gave, encoded, so that a trial that waits can be read."""
RUNS = "runs"
SECONDS = "seconds"
SPREAD = "spread"
OUTCOME = "outcome"
"""`{"state", "failure", "cause"}` of a trial that did not finish."""
SEED_VALUES = "seed_values"
"""`{index of the seed: its value}`."""


@dataclass(frozen=True)
class TrialRecord:
    """One trial. `number` counts from 0 in the order in which trials were asked or given."""

    number: int
    state: State
    point: dict[str, Any]
    """Value by dimension, as a person writes it; of a given point that waits only what was given."""
    values: tuple[float, ...] = ()
    """One an objective, () unless finished. Infinite where a target was missed."""
    curve: list[tuple[int, float]] = field(default_factory=list)
    """(samples, first objective), by samples; also of pruned and running trials."""
    failure: str | None = None
    """Class of `scalebook.training.base.failures`, of an infeasible or failed trial."""
    cause: str = ""
    runs: dict[int, str] = field(default_factory=dict)
    """MLflow run id by seed."""
    spread: float | None = None
    """Half of the 95 % interval of the first objective over seeds."""
    seconds: float | None = None
    """Of training, all seeds together."""
    started: float | None = None
    """Unix time, s."""
    ended: float | None = None
    given: bool = False
    """A point by hand."""
    seed_values: dict[int, float] = field(default_factory=dict)
    """First objective by the index of the seed, as far as reported."""


def at_rest(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """The trials of an ended search: those that were running wait until it is resumed."""
    return [replace(record, state="waiting") if record.state == "running" else record for record in records]


def at_work(records: Iterable[TrialRecord], now: Collection[int]) -> list[TrialRecord]:
    """The trials of a running search: those without a process, not in `now`, wait."""
    return [
        replace(record, state="waiting") if record.state == "running" and record.number not in now else record
        for record in records
    ]


def best(records: Iterable[TrialRecord], spec: "SearchSpec") -> TrialRecord | None:
    """The finished trial with the best first objective, the earlier of equals; None if none finished with a finite
    one."""
    sign = 1.0 if spec.objectives[0].lower else -1.0
    finished = [record for record in records if record.state == "finished" and math.isfinite(record.values[0])]
    return min(finished, key=lambda record: (sign * record.values[0], record.number), default=None)


def pareto(records: Iterable[TrialRecord], spec: "SearchSpec") -> list[TrialRecord]:
    """The Pareto front of the finished trials, sorted by the first objective.

    A trial with an infinite value (a missed target) stays only where its other objectives are better than all others'.
    """
    signs = [1.0 if objective.lower else -1.0 for objective in spec.objectives]
    costs = [
        (tuple(sign * value for sign, value in zip(signs, record.values, strict=True)), record)
        for record in records
        if record.state == "finished"
    ]
    costs.sort(key=lambda pair: (pair[0], pair[1].number))
    front: list[tuple[tuple[float, ...], TrialRecord]] = []
    for cost, record in costs:  # whoever dominates this one comes before it
        if not any(_dominates(other, cost) for other, _ in front):
            front.append((cost, record))
    return [record for _, record in front]


def _dominates(left: Sequence[float], right: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(left, right, strict=True)) and any(
        a < b for a, b in zip(left, right, strict=True)
    )


class Records:
    """Optuna's trials -> TrialRecords; those that did not change since the last call are not made again.

    Optuna's storages replace a trial's object when it changes, and give the same object where it did not.
    """

    def __init__(self, space: Sequence[Dimension]) -> None:
        self.space = space
        self._known: dict[int, tuple[FrozenTrial, TrialRecord]] = {}

    def of(self, trials: "Iterable[FrozenTrial]") -> list[TrialRecord]:
        return [self._one(trial) for trial in trials]

    def _one(self, trial: "FrozenTrial") -> TrialRecord:
        cached = self._known.get(trial.number)
        if cached is not None and cached[0] is trial:
            return cached[1]
        record = record_of(trial, self.space)
        self._known[trial.number] = (trial, record)
        return record


def record_of(trial: "FrozenTrial", space: Iterable[Dimension]) -> TrialRecord:
    """A TrialRecord of one of Optuna's trials."""
    attributes = trial.user_attrs
    outcome = attributes.get(OUTCOME, {})
    state = _state(trial, outcome)
    encoded = {**attributes.get(GIVEN, {}), **trial.params}
    ended_badly = state in ("pruned", "infeasible", "failed")
    return TrialRecord(
        number=trial.number,
        state=state,
        point=decode_point(space, encoded),
        values=tuple(trial.values or ()) if state == "finished" else (),
        curve=sorted(trial.intermediate_values.items()),
        failure=outcome.get("failure") if ended_badly else None,
        cause=outcome.get("cause", "") if ended_badly else "",
        runs={int(seed): str(run) for seed, run in attributes.get(RUNS, {}).items()},
        spread=attributes.get(SPREAD),
        seconds=attributes.get(SECONDS),
        started=trial.datetime_start.timestamp() if trial.datetime_start else None,
        ended=trial.datetime_complete.timestamp() if trial.datetime_complete else None,
        given=GIVEN in attributes,
        seed_values={int(index): value for index, value in attributes.get(SEED_VALUES, {}).items()},
    )


def _state(trial: "FrozenTrial", outcome: dict[str, Any]) -> State:
    words: dict[str, State] = {"WAITING": "waiting", "RUNNING": "running", "COMPLETE": "finished", "FAIL": "failed"}
    if trial.state.name == "PRUNED":
        return "infeasible" if outcome.get("state") == "infeasible" else "pruned"
    return words[trial.state.name]
