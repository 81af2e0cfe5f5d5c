"""Comparing experiments: the newest runs of each, on one axis, in one table, and what differs in their configs."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from scalebook.training.experiments import STRATEGY_NAMES, Description, Experiment, base_content
from scalebook.training.notebook.cells import Axis, ComparisonCell, Notebook
from scalebook.training.notebook.claims.judging import Judgement
from scalebook.training.notebook.offered_metrics import unnamed
from scalebook.training.notebook.read_results import SeedResult, results
from scalebook.training.notebook.relative import ClaimedRatio, ComparedSide, figures_of_runs, relative_rows
from scalebook.training.notebook.result_row import ExperimentRow, Outcome, axes_with_data, row
from scalebook.training.notebook.run_labels import labels
from scalebook.training.tracking import Direction, Goal, MetricCurve, RunReader, RunRecord, directions, names

ONE_PROCESS = "SingleDeviceStrategy"  # what Lightning makes of strategy: auto


class ComparedRun(NamedTuple):
    """Metrics and tags that tell how a run compares with one process and with the target of a comparison."""

    metrics: dict[str, float]
    tags: dict[str, str]


@dataclass(frozen=True)
class Comparison:
    """A comparison. Rows are in the requested order; `curves` are those of the runs in the rows' `run_ids`."""

    name: str
    metric: str
    target: float | None
    axes: list[Axis]
    rows: list[ExperimentRow]
    curves: list[MetricCurve]
    differences: list[tuple[str, dict[str, Any]]]
    """(dotted key, experiment -> value) for every key that is not the same everywhere; None: it has no such key."""
    direction: Direction
    """The better direction of the metric, and who says so."""
    unrecorded: Mapping[str, ComparedRun] = field(default_factory=dict)
    """By run id, what `record_figures` has to add to MLflow."""

    @property
    def lower_is_better(self) -> bool:
        return self.direction.lower


def compare(
    reader: RunReader,
    notebook_name: str,
    nb: Notebook,
    cell: ComparisonCell,
    description: Description,
    seeds: int | None = None,
    judged: Mapping[str, Judgement] = MappingProxyType({}),
) -> Comparison:
    """The comparison `cell` of the notebook whose file is called `notebook_name`.

    Only runs of the configs as they stand count, the newest of each seed; `seeds` replaces the cells' `repeats`. Names
    that are no experiments give rows with the outcome "missing". `judged`: the claims of the notebook, whose intervals
    the rows have that they are about.
    """
    by_name: dict[str, list[SeedResult]] = {}
    for name in cell.runs:
        if (experiment := nb.experiment(name)) is not None:
            by_name[name] = results(reader, notebook_name, experiment, description, nb, experiment.seeds(seeds))
    runs_by_name = {
        name: _shown([result.run for result in by_seed if result.run and not result.stale])
        for name, by_seed in by_name.items()
    }
    every = [run for runs in runs_by_name.values() for run in runs]
    compared = {one.name: one.experiment(description) for one in nb.experiments() if one.name in cell.runs}
    metric = cell.metric or unnamed(compared.values(), every)
    better = directions.of_runs(
        metric, cell.goal, [run.tags for run in every], [one.callbacks for one in compared.values()]
    )
    rows: list[ExperimentRow] = []
    curves: dict[str, MetricCurve] = {}
    for name in cell.runs:
        if name not in by_name:
            rows.append(ExperimentRow(name, "missing", seeds=0, note="no such experiment in this notebook"))
            continue
        runs, by_seed = runs_by_name[name], by_name[name]
        curves |= {run.id: reader.curve(run.id, metric) for run in runs}
        made = row(name, runs, curves, cell.target, len(by_seed), _outcome(by_seed), better.lower)
        rows.append(_with_note(made, by_seed))
    sides = _sides(rows, compared, every)
    claims = _claims(judged.values(), metric, cell.target)
    rows = _with_relative(rows, sides, curves, cell.target, better.lower, claims)
    unrecorded = _unrecorded(nb, replace(cell, metric=metric), rows, sides, curves, better.lower)
    differing = differences(meanings_by_name(compared))
    return Comparison(
        cell.name, metric, cell.target, list(cell.x), rows, list(curves.values()), differing, better, unrecorded
    )


def compare_runs(
    reader: RunReader,
    run_ids: Sequence[str],
    metric: str,
    target: float | None = None,
    *,
    experiments: Mapping[str, Experiment] | None = None,
    grouped: bool = False,
    goal: Goal | None = None,
) -> Comparison:
    """Any runs side by side, a row each, labelled by their titles; KeyError for an id that the store does not have.

    `grouped`: those of one experiment that differ in nothing but their seed are one row, labelled by its cell.
    `experiments`: those of the runs, by id, as far as they can be read. Unless all are there, the differences are of
    MLflow's parameters. `goal`: the metric's better direction, as a person says.
    """
    runs = [reader.run(run_id) for run_id in dict.fromkeys(run_ids)]
    curves = {run.id: reader.curve(run.id, metric) for run in runs}
    groups: dict[tuple[str, ...], list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(_experiment(run) if grouped else (run.id,), []).append(run)
    firsts = [members[0] for members in groups.values()]
    several = {members[0].id for members in groups.values() if len(members) > 1}
    called = labels(firsts, lambda run: run.cell or run.title if run.id in several else run.title)
    better = directions.of_runs(metric, goal, [run.tags for run in runs])
    rows = [
        row(called[members[0].id], members, curves, target, len(members), _worst(members), better.lower)
        for members in groups.values()
    ]
    by_name = {called[run.id]: experiments[run.id] for run in firsts if experiments and run.id in experiments}
    rows = _with_relative(rows, _sides(rows, by_name, runs), curves, target, better.lower)
    params: dict[str, Mapping[str, Any]] = {called[run.id]: run.params for run in firsts}
    configs = meanings_by_name(by_name) if len(by_name) == len(firsts) else params
    differing = [
        difference for difference in differences(configs) if not (grouped and difference[0] == "seed_everything")
    ]
    return Comparison("", metric, target, axes_with_data(rows), rows, list(curves.values()), differing, better)


def _sides(
    rows: Sequence[ExperimentRow], experiments: Mapping[str, Experiment], runs: Sequence[RunRecord]
) -> list[ComparedSide]:
    """The rows with their experiments, by the names of the rows; without names that the notebook does not have."""
    by_id = {run.id: run for run in runs if run.outcome == "finished"}
    return [
        ComparedSide(name, experiments.get(name), [by_id[run] for run in row.run_ids if run in by_id], row.shared)
        for row in rows
        if (name := row.experiment) in experiments or row.outcome != "missing"
    ]


def _with_relative(
    rows: Sequence[ExperimentRow],
    sides: Sequence[ComparedSide],
    curves: Mapping[str, MetricCurve],
    target: float | None,
    lower: bool,
    claims: Mapping[str, ClaimedRatio] = MappingProxyType({}),
) -> list[ExperimentRow]:
    """The rows with their figures relative to one process."""
    relative = relative_rows(sides, curves, target, lower, claims)
    return [replace(row, relative=relative.get(row.experiment, row.relative)) for row in rows]


def _claims(judged: Iterable[Judgement], metric: str, target: float | None) -> dict[str, ClaimedRatio]:
    """What is claimed of experiments compared with another one, by the metric and the target of a comparison; by name,
    what is claimed first."""
    claims: dict[str, ClaimedRatio] = {}
    for judgement in judged:
        cell = judgement.cell
        if cell.ratios or not isinstance(cell.against, str) or (cell.metric, cell.target) != (metric, target):
            continue
        for side in judgement.rows:
            if side.verdict is not None and side.claimed is not None:
                is_resolved = judgement.verdict != "not resolved"
                ratio = ClaimedRatio(cell.against, side.claimed.level, cell.figure, is_resolved)
                claims.setdefault(side.evidence.cell, ratio)
    return claims


def _unrecorded(
    nb: Notebook,
    cell: ComparisonCell,
    rows: Sequence[ExperimentRow],
    sides: Sequence[ComparedSide],
    curves: Mapping[str, MetricCurve],
    lower: bool,
) -> dict[str, ComparedRun]:
    """What MLflow does not have yet. A run has the figures of one comparison: the first with a target that names its
    experiment, or without any the first that names it."""
    relative = {row.experiment: row.relative for row in rows}
    base_names = {one.baseline for one in relative.values() if one.baseline}
    unrecorded: dict[str, ComparedRun] = {}
    for side in sides:
        candidates = [one for one in nb.comparisons() if side.name in one.runs]
        first = next((one for one in candidates if one.target is not None), next(iter(candidates), None))
        if first is None or first.name != cell.name:
            continue
        row = relative[side.name]
        baseline = row.baseline or (side.name if side.name in base_names else "")
        tags = {names.TAG_TARGET: f"{cell.metric} {cell.target:g}"} if cell.target is not None else {}
        tags |= {names.TAG_BASELINE: baseline} if baseline else {}
        by_run = figures_of_runs(side, row, curves, cell.target, lower)
        for run in side.whole:
            metrics = {
                name: value
                for name, value in by_run[run.id].items()
                if not math.isclose(run.metrics.get(name, math.nan), value, rel_tol=1e-9)
            }
            new_tags = {name: value for name, value in tags.items() if by_run[run.id] and run.tags.get(name) != value}
            if metrics or new_tags:
                unrecorded[run.id] = ComparedRun(metrics, new_tags)
    return unrecorded


def record_figures(reader: RunReader, comparison: Comparison) -> str:
    """Add to MLflow what the comparison says of its runs. Why that failed, or ""."""
    from mlflow.entities import Metric, RunTag
    from mlflow.exceptions import MlflowException

    now = int(time.time() * 1000)
    try:
        for run_id, figures in comparison.unrecorded.items():
            reader.client.log_batch(
                run_id,
                metrics=[Metric(name, value, now, 0) for name, value in figures.metrics.items()],
                tags=[RunTag(name, value) for name, value in figures.tags.items()],
            )
    except MlflowException as error:
        return str(error).splitlines()[0][:200]
    return ""


def meaning_by_key(experiment: Experiment) -> dict[str, Any]:
    """The settings of an experiment by dotted key: defaults left out, even if written, and classes by name."""
    by_key: dict[str, Any] = {}
    for key, value in flatten(base_content(experiment)).items():
        if key.endswith(".class_path"):
            name = str(value).rpartition(".")[2]
            by_key[key.removesuffix(".class_path")] = STRATEGY_NAMES["single"] if name == ONE_PROCESS else name
        elif value != {}:
            by_key[key] = value
    return by_key


def meanings_by_name(experiments: Mapping[str, Experiment]) -> dict[str, dict[str, Any]]:
    """`meaning_by_key` of each by name; a key that only another one sets has its default here.

    Keys are those of MLflow's parameters and of searches, `model.lr` for `model.init_args.lr`."""
    own = {name: meaning_by_key(experiment) for name, experiment in experiments.items()}
    keys = dict.fromkeys(key for content in own.values() for key in content)
    by_name: dict[str, dict[str, Any]] = {}
    for name, experiment in experiments.items():
        full = flatten(experiment.completed)
        content = {key: own[name].get(key, full.get(key)) for key in keys if key in own[name] or key in full}
        by_name[name] = {key.replace(".init_args.", "."): value for key, value in content.items()}
    return by_name


def differences(configs: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Every dotted key whose value is not the same in all `configs`, in the order in which keys appear."""
    flat = {name: flatten(config) for name, config in configs.items()}
    keys = dict.fromkeys(key for config in flat.values() for key in config)
    values = {key: {name: config.get(key) for name, config in flat.items()} for key in keys}
    return [(key, by_name) for key, by_name in values.items() if len({repr(value) for value in by_name.values()}) > 1]


def flatten(nested: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """`{"trainer.devices": 2, ...}`; lists and empty mappings are values."""
    by_key: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            by_key |= flatten(value, f"{above}{key}.")
        else:
            by_key[f"{above}{key}"] = value
    return by_key


def _shown(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The finished ones; where there are none, those that run."""
    by_word = {word: [run for run in runs if run.outcome == word] for word in ("finished", "running")}
    return by_word["finished"] or by_word["running"]


def _outcome(results: Sequence[SeedResult]) -> Outcome:
    words = [_word(result.run) if result.run and not result.stale else "missing" for result in results]
    order: tuple[Outcome, ...] = ("failed", "stopped", "pruned", "running", "waiting", "missing")
    return next((word for word in order if word in words), "finished")


def _word(run: RunRecord) -> Outcome:
    words: dict[str, Outcome] = {
        "finished": "finished", "running": "running", "waiting": "waiting", "stopped": "stopped",
        "pruned": "pruned",
    }  # fmt: skip
    return words.get(run.outcome, "failed")


def _with_note(made: ExperimentRow, results: Sequence[SeedResult]) -> ExperimentRow:
    failed = [result.run for result in results if result.run and not result.stale and _word(result.run) == "failed"]
    tags = failed[0].tags if failed else {}
    note = f"{tags.get(names.TAG_FAILURE, '')}: {tags.get(names.TAG_CAUSE, '')}"
    changed = list(dict.fromkeys(result.changed for result in results if result.stale))
    if not failed and changed:
        note = f"the results are from an earlier {' or '.join(changed).removeprefix('the ')}"
    return replace(made, note=note.strip(": "))


def _experiment(run: RunRecord) -> tuple[str, ...]:
    """What runs share that differ in their seed alone; a run of no cell is by itself."""
    if not run.cell:
        return (run.id,)
    return (
        run.notebook or "",
        run.cell,
        *(run.tags.get(key, "") for key in (names.TAG_CONFIG_HASH, names.TAG_MODULES)),
    )


def _worst(runs: Sequence[RunRecord]) -> Outcome:
    words = {_word(run) for run in runs}
    order: tuple[Outcome, ...] = ("failed", "stopped", "pruned", "running", "waiting")
    return next((word for word in order if word in words), "finished")
