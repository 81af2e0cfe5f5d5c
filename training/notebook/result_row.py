"""One row of a comparison: what the runs of one experiment reached, how fast, at what cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from scalebook.training.notebook.cells import Axis
from scalebook.training.notebook.relative import RelativeRow
from scalebook.training.tracking import Estimate, MetricCurve, Reached, RunRecord, estimate, names, own_metrics, reached

Outcome = Literal["finished", "running", "waiting", "stopped", "pruned", "failed", "missing"]
FEW_LOST: Final = 3
"""The most runs whose lost workers are named."""
AXES: Final[tuple[Axis, ...]] = get_args(Axis)


@dataclass(frozen=True)
class ExperimentRow:
    """One experiment (or, on the Compare page, one run). None where nothing was measured.

    `outcome` is "finished" when every seed has finished; else what stands in the way of that. The figures are over the
    runs in `run_ids`: the finished ones, or those that run where none has finished.
    """

    experiment: str
    outcome: Outcome
    run_ids: list[str] = field(default_factory=list)
    seeds: int = 1
    """How many runs were asked for."""
    strategy: str = ""
    rule: str | None = None
    workers: int | None = None
    is_simulated: bool = False
    """Its workers, and so its seconds, are virtual."""
    is_own: bool = False
    """The compared metric of any of its runs is not computed from all workers' data together."""
    batch_per_worker: int | None = None
    batch_global: int | None = None
    learning_rate: float | None = None
    best: Estimate | None = None
    final: Estimate | None = None
    to_target: Mapping[Axis, Reached] = field(default_factory=dict)
    """Empty where the comparison has no target; without bytes where they were not counted. `Reached.estimate` None:
    censored, a run missed it."""
    updates_per_second: Estimate | None = None
    """Training only, over the whole run."""
    samples_per_second: Estimate | None = None
    staleness_mean: Estimate | None = None
    staleness_p95: Estimate | None = None
    measured: Mapping[str, Estimate] = field(default_factory=dict)
    """What was measured about the runs, by metric: `perf/...`, `ps/...`; without those of single workers."""
    shared: str = ""
    """In words, which of its seeds are not independent."""
    lost: str = ""
    """In words, which of its runs have lost workers."""
    note: str = ""
    """Why runs are missing: the failure's class and cause."""
    relative: RelativeRow = field(default_factory=RelativeRow)
    """Its figures as multiples of those of one process."""

    @property
    def shares(self) -> dict[str, float]:
        """Where the time of the workers went: compute, wait, communicate, data -> share; those that were measured."""
        return {part: self.measured[name].mean for part, name in names.PARTS.items() if name in self.measured}


def row(
    name: str,
    runs: Sequence[RunRecord],
    curves: Mapping[str, MetricCurve],
    target: float | None,
    seeds: int,
    outcome: Outcome,
    lower: bool,
) -> ExperimentRow:
    """The row of `runs`. `curves`, by run id, are those of the compared metric; `lower`: a lower value is better."""
    mine = [curves[run.id] for run in runs]
    tags = runs[0].tags if runs else {}
    return ExperimentRow(
        experiment=name,
        outcome=outcome,
        run_ids=[run.id for run in runs],
        seeds=seeds,
        strategy=tags.get(names.TAG_STRATEGY, ""),
        rule=tags.get(names.TAG_RULE) or None,
        workers=_int(tags.get(names.TAG_WORKERS)),
        is_simulated=names.is_simulated(tags),
        is_own=any(own_metrics.is_own(run.tags, curves[run.id].metric) for run in runs),
        batch_per_worker=_int(tags.get(names.TAG_BATCH_PER_WORKER)),
        batch_global=_int(tags.get(names.TAG_BATCH_GLOBAL)),
        learning_rate=_float(tags.get(names.TAG_LR_SCALED) or tags.get(names.TAG_LR_ASKED)),
        best=estimate(best(curve, lower) for curve in mine),
        final=estimate(curve.values[-1] if curve.values else None for curve in mine),
        to_target={
            axis: reached(curve.first_at(axis, target, lower) for curve in mine)
            for axis in AXES
            if all(curve.axis(axis) for curve in mine if curve.values)
        }
        if target is not None
        else {},
        updates_per_second=_metric(runs, names.UPDATES_PER_SECOND),
        samples_per_second=_metric(runs, names.SAMPLES_PER_SECOND),
        staleness_mean=_metric(runs, names.STALENESS_MEAN),
        staleness_p95=_metric(runs, names.STALENESS_P95),
        measured=_measured(runs),
        shared=shared_numbers(runs),
        lost=lost_workers(runs),
    )


def shared_numbers(runs: Sequence[RunRecord]) -> str:
    """In words, which runs of an experiment drew the same random numbers although their seeds differ; "" if none."""
    for tag in (names.TAG_RANDOM_TRAINED, names.TAG_RANDOM_MADE):
        seeds: dict[str, set[str]] = {}
        for run in runs:
            if state := run.tags.get(tag):
                seeds.setdefault(state, set()).add(run.tags.get(names.TAG_SEED, ""))
        same = max(seeds.values(), key=len, default=set())
        if len(same) > 1:
            return (
                f"seeds {', '.join(sorted(same, key=lambda seed: (len(seed), seed)))} use the same random numbers, "
                "because the model or the data calls seed_everything or manual_seed. So these runs are not "
                "independent repeats. Remove that call."
            )
    return ""


def lost_workers(runs: Sequence[RunRecord]) -> str:
    """In words, which runs have lost workers and went on, so that they are not what their config says; "" if none."""
    lost = [
        (run.tags.get(names.TAG_SEED, ""), words) for run in runs if (words := run.tags.get(names.TAG_WORKERS_LOST))
    ]
    if not lost:
        return ""
    few = "; ".join(f"seed {seed}: {words}" for seed, words in lost[:FEW_LOST])
    few += f"; and {len(lost) - FEW_LOST} more" if len(lost) > FEW_LOST else ""
    again = "that seed" if len(lost) == 1 else "those seeds"
    return (
        f"{len(lost)} of {len(runs)} {'run' if len(runs) == 1 else 'runs'} lost a worker and continued, so the "
        f"training differs from the config ({few}). Run {again} again."
    )


def axes_with_data(rows: Sequence[ExperimentRow]) -> list[Axis]:
    """The axes that a table shows: bytes only if any moved."""
    amounts = [row.to_target.get("bytes") for row in rows]
    moved = any(amount is not None and (amount.estimate is None or amount.estimate.mean > 0) for amount in amounts)
    return [axis for axis in AXES if axis != "bytes" or moved]


def best(curve: MetricCurve, lower: bool) -> float | None:
    """The best value of a curve; NaN is never best."""
    values = [value for value in curve.values if not math.isnan(value)]
    return (min(values) if lower else max(values)) if values else None


def _metric(runs: Sequence[RunRecord], name: str) -> Estimate | None:
    return estimate(run.metrics.get(name) for run in runs)


def _measured(runs: Sequence[RunRecord]) -> dict[str, Estimate]:
    recorded = sorted({name for run in runs for name in run.metrics if name.startswith(names.MEASURED)})
    estimates = {name: _metric(runs, name) for name in recorded}
    return {name: estimate for name, estimate in estimates.items() if estimate is not None}


def _int(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 19 else None


def _float(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
