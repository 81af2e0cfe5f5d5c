"""The trials of a search in figures and words: counts, the best trial, each trial's values."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from scalebook.app.shared.words import figure, interval, plural
from scalebook.training.base import ConfigError, duration
from scalebook.training.experiments.search import SearchSpec, keys, resolve, summary, trials_wanted
from scalebook.training.notebook import lost_workers
from scalebook.training.search import SearchProgress
from scalebook.training.search.map import landscape
from scalebook.training.search.study import Tags, TrialRecord, own_values
from scalebook.training.search.study import best as best_of
from scalebook.training.tracking import RunReader, RunRecord, names

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

STATES = ("finished", "running", "pruned", "infeasible", "failed", "waiting")
FEWEST = 10
"""Finished trials that importance needs; with fewer it is chance."""
UNITS = {"seconds": "s", "virtual seconds": "virtual s", "samples": "samples", "updates": "updates"}


def counts(records: Sequence[TrialRecord]) -> dict[str, int]:
    """The number of trials in each state, in the order of STATES, also zeros."""
    by_state = Counter(str(record.state) for record in records)
    return {state: by_state[state] for state in STATES}


def infeasible_words(records: Sequence[TrialRecord]) -> str:
    """The infeasible trials by failure: `12 diverged, 5 out of memory`; "" without any."""
    by_failure = Counter(record.failure or "for another reason" for record in records if record.state == "infeasible")
    return ", ".join(f"{count} {failure}" for failure, count in by_failure.most_common())


def best(records: Sequence[TrialRecord], spec: SearchSpec) -> TrialRecord | None:
    """The best finished trial by the first objective."""
    return best_of(records, spec)


def reached(record: TrialRecord, spec: SearchSpec, objective: int = 0) -> str:
    """The trial's value: `0.2103 ± 0.0012`, with the objective's unit if it has one; "" without a value."""
    result = landscape.value(record, objective)
    if result is None:
        return ""
    unit = UNITS.get(amount(spec, spec.objectives[objective].name), "")
    half = record.spread if objective == 0 else None
    return f"{interval(result, half)}{f' {unit}' if unit else ''}"


def own_objectives(record: TrialRecord, spec: SearchSpec, reader: RunReader) -> list[str]:
    """The objectives whose values in this trial are not computed from all workers' data together."""
    return own_values.own_words([record], spec, {run.id: run.tags for run in _runs(record, reader)})


def lost_words(record: TrialRecord, reader: RunReader) -> str:
    """Which runs of this trial have lost workers, in words; "" if none."""
    return lost_workers(_runs(record, reader))


def _runs(record: TrialRecord, reader: RunReader) -> list[RunRecord]:
    """The trial's runs, without those that were deleted."""
    runs = []
    for run_id in record.runs.values():
        with suppress(KeyError):
            runs.append(reader.run(run_id))
    return runs


def amount(spec: SearchSpec, name: str) -> str:
    """The name of an objective on the page: seconds of simulated workers are called virtual."""
    return f"virtual {name}" if name == "seconds" and spec.is_simulated else name


def standing(progress: SearchProgress | None, records: Sequence[TrialRecord], spec: SearchSpec) -> tuple[float, str]:
    """The progress of the search, 0 to 1, and in words: `84 of 200 trials, 2 running, about 3 min 05 s left`."""
    done = sum(record.state not in ("running", "waiting") for record in records)
    running = sum(record.state == "running" for record in records)
    trials = max(trials_wanted(spec), done)  # the driver may not have told of trials that were added just now
    words = [f"{done:,} of {plural(trials, 'trial')}"]
    if running:
        words.append(f"{running} running")
    if progress is not None and progress.left_s is not None and done < trials:
        words.append(f"about {duration(progress.left_s)} left")
    return (done / trials if trials else 0.0), ", ".join(words)


def notes(spec: SearchSpec, progress: SearchProgress | None) -> list[str]:
    """Sentences that explain the figures: what the batch size means, whether times can be compared, the seeds."""
    sentences = []
    if any(dimension.name == "workers" for dimension in spec.space):
        sentences.append(
            "**Strong scaling**: batch_size is global, split over the workers."
            if spec.scaling == "strong"
            else "**Weak scaling**: batch_size is per worker; the global batch grows with the workers."
        )
    if spec.is_simulated:
        sentences.append(names.time_words([True]))
    elif spec.exclusive:
        where = "all nodes" if spec.exclusive == keys.ALL else "the machine"
        sentences.append(
            f"**Exclusive**: one trial at a time, with nothing else running on {where}, so times can be compared."
        )
    elif any(objective.name == "seconds" for objective in spec.objectives):
        sentences.append("**Not exclusive**: trials ran at the same time and slowed each other down.")
    if spec.seeds > 1:
        sentences.append(f"{spec.seeds} seeds per point; ± is half the width of the 95 % interval over the seeds.")
    if progress is not None and progress.overhead_s is not None:
        sentences.append(f"Overhead per trial: {duration(progress.overhead_s)} (median).")
    if progress is not None and progress.note:
        sentences.append(progress.note)
    return sentences


def resolution(records: Sequence[TrialRecord], spec: SearchSpec) -> str:
    """A sentence if the seeds cannot distinguish the best trial from the next ones, else ""."""
    lower = spec.objectives[0].lower
    pairs = [(reached_, record) for record in records if (reached_ := landscape.value(record)) is not None]
    ranked = sorted(pairs, key=lambda pair: pair[0] if lower else -pair[0])
    if len(ranked) < 2:
        return ""
    (first, best_record), (second, _) = ranked[:2]
    if best_record.spread is None:
        return "With one seed per point, small differences may be due to chance."
    near = sum(
        abs(other_value - first) <= best_record.spread + (other.spread or 0.0)
        for other_value, other in ranked[1:]
        if other is not best_record
    )
    if not near or abs(second - first) > best_record.spread + (ranked[1][1].spread or 0.0):
        return ""
    return f"{plural(near, 'other trial')} cannot be distinguished from the best trial with these seeds."


def words(record: TrialRecord, spec: SearchSpec) -> str:
    """The point in words: `batch 64, rate 0.1, async × 2`; if the rate scales with the batch, `rate 0.1 per 256
    samples`."""
    text = summary(spec, record.point)
    if per_batch(spec) is None or "learning_rate" not in record.point:
        return text
    rate = f"rate {spec.dimension('learning_rate').label(record.point['learning_rate'])}"
    return text.replace(rate, f"{rate} per {per_batch(spec):,} samples", 1)


def per_batch(spec: SearchSpec) -> int | None:
    """The reference batch of a point's learning rate; None if the rate is applied unscaled."""
    return spec.per


def factors(records: Sequence[TrialRecord], spec: SearchSpec) -> dict[int, float]:
    """The factor that scaled each trial's learning rate, by the trial's number, if it is known."""
    if spec.rate is None or per_batch(spec) is None or not spec.has("learning_rate"):
        return {}
    by_point: dict[str, float | None] = {}
    numbers: dict[int, float] = {}
    for record in records:
        rest = {name: value for name, value in record.point.items() if name != "learning_rate"}
        key = repr(sorted(rest.items()))  # the factor depends on all but the rate itself
        if key not in by_point:
            by_point[key] = _factor(record, spec)
        if (factor := by_point[key]) is not None:
            numbers[record.number] = factor
    return numbers


def _factor(record: TrialRecord, spec: SearchSpec) -> float | None:
    try:
        rate = resolve(spec, record.point).rate
    except ConfigError:
        return None  # a class of the search is gone
    if not rate.requested or rate.scaled is None:
        return None
    return rate.scaled / rate.requested


def hover(record: TrialRecord, spec: SearchSpec) -> str:
    """The hover text of a trial in a chart."""
    head = f"<b>trial {record.number}</b> · {escape(words(record, spec), quote=False)}"
    if record.state == "finished":
        parts = [f"{objective.name} {reached(record, spec, i)}" for i, objective in enumerate(spec.objectives)]
        if record.seconds is not None and all(objective.name != "seconds" for objective in spec.objectives):
            parts.append(duration(record.seconds))
        return f"{head}<br>{' · '.join(parts)}"
    if record.state == "pruned" and record.curve:
        return f"{head}<br>pruned after {record.curve[-1][0]:,} samples at {figure(record.curve[-1][1])}"
    return f"{head}<br>{record.failure or record.state}"


CLASS: Final = re.compile(r"^(\w+(Error|Exception)|Diverged|WorkerLost|ServerLost|NodeLost|TimedOut): ")
"""The exception's name before a cause. The failure's class says more; our own names occur in older searches only."""


@dataclass(frozen=True)
class TrialRow:
    """One trial in the table."""

    number: int
    state: str
    point: dict[str, str]
    """Labels by dimension, "" if the point has no value there."""
    raw: dict[str, Any]
    """The values themselves."""
    values: tuple[float | None, ...]
    spread: float | None
    seconds: float | None
    why: str
    own: str
    """Objectives whose values are not computed from all workers' data together, with commas between."""


def rows(
    records: Sequence[TrialRecord], spec: SearchSpec, tags: Tags, lost: Tags = MappingProxyType({})
) -> list[TrialRow]:
    """The rows of the table: all trials by number, as short texts and plain figures. `tags`: those of the runs that
    logged a metric which is not computed from all workers' data together; `lost`: those of runs that lost workers."""
    rows_ = []
    for record in sorted(records, key=lambda trial: trial.number):
        point = {
            dimension.name: dimension.label(record.point[dimension.name]) if dimension.name in record.point else ""
            for dimension in spec.space
        }
        values = tuple(landscape.value(record, i) for i in range(len(spec.objectives)))
        cause = CLASS.sub("", record.cause) if record.failure else record.cause
        deaths = "; ".join(lost[run][names.TAG_WORKERS_LOST] for run in record.runs.values() if run in lost)
        went_on = f"lost a worker and continued: {deaths}" if deaths else ""
        why = ": ".join(part for part in (record.failure or "", cause) if part) or went_on
        rows_.append(
            TrialRow(
                record.number,
                record.state,
                point,
                record.point,
                values,
                record.spread,
                record.seconds,
                why,
                ", ".join(own_values.own_words([record], spec, tags)),
            )
        )
    return rows_


def importance(records: Sequence[TrialRecord], spec: SearchSpec) -> dict[str, float] | None:
    """How much each dimension decides whether a trial is among the best tenth: shares of 1, the largest first.

    PED-ANOVA (Watanabe, Bansal and Hutter 2023), computed by Optuna over the finished trials. None with fewer than
    FEWEST of them, and where every share is 0.
    """
    finished = [record for record in records if landscape.value(record) is not None]
    if len(finished) < FEWEST:
        return None
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    lower = spec.objectives[0].lower
    study = optuna.create_study(direction="minimize" if lower else "maximize")
    distributions = {dimension.name: _distribution(finished, spec, dimension.name) for dimension in spec.space}
    varying = {name: distribution for name, distribution in distributions.items() if distribution is not None}
    study.add_trials(
        [
            optuna.trial.create_trial(
                params={name: _stored(spec, record, name) for name in varying},
                distributions=varying,
                value=landscape.value(record),
            )
            for record in finished
            if all(name in record.point for name in varying)
        ]
    )
    if len(study.trials) < FEWEST or not varying:
        return None
    importances = PedAnovaImportanceEvaluator().evaluate(study)
    total = sum(importances.values())
    if not (math.isfinite(total) and total > 0):
        return None
    shares = {name: importances.get(name, 0.0) / total for name in distributions}
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def _stored(spec: SearchSpec, record: TrialRecord, name: str) -> Any:
    dimension = spec.dimension(name)
    raw = record.point[name]
    return dimension.label(raw) if not dimension.ordered else raw


def _distribution(records: Sequence[TrialRecord], spec: SearchSpec, name: str) -> "BaseDistribution | None":
    """A distribution that covers all values of the dimension, also those of points added by hand; None if the values do
    not vary."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    dimension = spec.dimension(name)
    values = [record.point[name] for record in records if name in record.point]
    if not dimension.ordered:
        labels = list(dict.fromkeys(dimension.label(value) for value in values))
        return CategoricalDistribution(labels) if len(labels) > 1 else None
    if len({float(value) for value in values}) < 2:
        return None
    low, high = min(values), max(values)
    log = low > 0 and (dimension.log or dimension.kind in ("log_uniform", "powers_of_two"))
    if all(isinstance(value, int) for value in values):
        return IntDistribution(low, high, log=log)
    return FloatDistribution(float(low), float(high), log=log)
