"""An experiment of the document: how it stands, what it reached by seed, its learning curve, its config."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scalebook.training.base import Workspace, code_changes, duration
from scalebook.training.experiments import Description, config_hash, strategy_words
from scalebook.training.jobs import JobFolder
from scalebook.training.notebook import number_format
from scalebook.training.notebook.cells import Axis, ExperimentCell, Notebook
from scalebook.training.notebook.export.document import (
    Block,
    CellHead,
    Chart,
    DataTable,
    Facts,
    Remark,
    SourceText,
    cut_lines,
)
from scalebook.training.notebook.fences import fences
from scalebook.training.notebook.read_results import SeedResult, results
from scalebook.training.tracking import (
    DrawnCurve,
    Estimate,
    MetricCurve,
    RunReader,
    RunRecord,
    drawing,
    mean_curve,
    names,
    own_metrics,
)

MOST_SEEDS: Final = 50
AXIS: Final[Axis] = "updates"
ORDER: Final = ("running", "stopping", "waiting", "failed", "stopped", "finished")
"""States in the order of urgency: the first one among an experiment's runs is its own."""


@dataclass(frozen=True)
class ExperimentPart:
    """An experiment's blocks, and the runs that they show."""

    blocks: list[Block]
    runs: list[RunRecord]


def experiment_part(
    workspace: Workspace, reader: RunReader, notebook: str, nb: Notebook, cell: ExperimentCell, description: Description
) -> ExperimentPart:
    """The first `MOST_SEEDS` seeds of the cell. `notebook` is the file's name."""
    seeds = cell.seeds()
    by_seed = results(reader, notebook, cell, description, nb, seeds[:MOST_SEEDS])
    runs = [result.run for result in by_seed if result.run is not None]
    states = {run.id: state(workspace, run) for run in runs}
    word = next((word for word in ORDER if word in states.values()), "not run")
    changed = [result.changed for result in by_seed if result.stale]
    blocks: list[Block] = [CellHead("experiment", cell.name, [word, *(["stale"] if changed else [])])]
    metric = names.main_metric(key for run in runs for key in run.metrics)
    curves = {run.id: reader.curve(run.id, metric) for run in runs} if metric else {}
    blocks.append(_facts(cell, description))
    if words := names.time_words([cell.experiment(description).strategy.is_simulated]):
        blocks.append(Remark(words))
    if changed:
        words = (
            f"Stale: {code_changes.changed_words(changed)}. These results are from an earlier state of the experiment."
        )
        blocks.append(Remark(words, trouble=True))
    if runs:
        blocks.append(_table(by_seed, states, metric, workspace))
    if any(own_metrics.is_own(run.tags, metric or "") for run in runs):
        blocks.append(Remark(f"{own_metrics.SIGN} {own_metrics.WORDS}"))
    if len(seeds) > MOST_SEEDS:
        blocks.append(Remark(f"Only the first {MOST_SEEDS} of {len(seeds)} seeds are shown."))
    blocks += [_failure(run) for run in runs if states[run.id] == "failed"]
    if metric and (drawn := drawing.curve_figure(_drawn(by_seed, curves), AXIS, metric)):
        words = f"{metric} against {AXIS}"
        blocks.append(Chart(drawing.as_svg(drawn, words), f"{cell.name}: {words}"))
    return ExperimentPart([*blocks, config_of(cell.source)], runs)


def state(workspace: Workspace, run: RunRecord) -> str:
    """The state of a run by its job's folder, which knows whether it lives; by the store if the folder is not here."""
    job = JobFolder(workspace.jobs / run.id)
    return job.state() if (job.path / "job.json").exists() else run.outcome


def config_of(source: str) -> SourceText:
    """The content of a cell's fence, as it was written; in Markdown it is that cell again."""
    fence = fences(source)[0]
    text = cut_lines(fence.body)
    return SourceText("Config", text, f"yaml {fence.kind}={fence.name}" if text == fence.body else "yaml")


def moment(seconds: float) -> str:
    """`2026-03-01 09:30 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _facts(cell: ExperimentCell, description: Description) -> Facts:
    """What the config says as it stands, whatever has run."""
    experiment = cell.experiment(description)
    strategy, batch, rate = experiment.strategy, experiment.batch, experiment.rate.applied
    pairs = [
        ("model", experiment.model.last_name),
        ("data", experiment.data.last_name),
        ("strategy", strategy_words(strategy.name, strategy.words, simulated=strategy.is_simulated)),
        ("workers", f"{strategy.workers:,}"),
        ("batch per worker", "" if batch.per_worker is None else f"{batch.per_worker:,}"),
        ("global batch", "" if batch.together is None else f"{batch.together:,}"),
        ("learning rate", "" if rate is None else f"{rate:g}"),
        ("seeds", f"{cell.repeats:,}"),
        ("config", config_hash(cell.experiment(description))),
    ]
    return Facts([(name, value) for name, value in pairs if value])


def _table(
    by_seed: Sequence[SeedResult], states: dict[str, str], metric: str | None, workspace: Workspace
) -> DataTable:
    runs = [result for result in by_seed if result.run is not None]
    stale = any(names.STALENESS_MEAN in run.run.metrics for run in runs if run.run)
    head = ["seed", "state", *([f"best {metric}", "final"] if metric else []), *(["staleness"] if stale else [])]
    earlier = any(run.stale for run in runs)
    head += ["updates", "updates/s", "took", "ended", *(["config"] if earlier else [])]
    rows = []
    for run in runs:
        assert run.run is not None
        metrics = run.run.metrics
        reached = (
            [metrics.get(names.best(metric)), metrics.get(names.final(metric), metrics.get(metric))] if metric else []
        )
        ended = moment(run.run.ended) if run.run.ended else ""
        rows.append(
            [
                str(run.seed),
                states[run.run.id] + (", stale" if run.stale else ""),
                *(
                    _figure(value) + (own_metrics.sign(run.run.tags, metric or "") if value is not None else "")
                    for value in reached
                ),
                *([_figure(metrics.get(names.STALENESS_MEAN), 3)] if stale else []),
                number_format.count(metrics[names.UPDATES]) if names.UPDATES in metrics else number_format.NOTHING,
                _figure(metrics.get(names.UPDATES_PER_SECOND), 3),
                duration(_seconds(workspace, run.run)) or number_format.NOTHING,
                ended or number_format.NOTHING,
                *([run.run.tags.get(names.TAG_CONFIG_HASH, number_format.NOTHING)] if earlier else []),
            ]
        )
    return DataTable(head, rows, [i for i, name in enumerate(head) if name not in ("state", "ended", "config")])


def _figure(value: float | None, digits: int = number_format.DIGITS) -> str:
    if value is None:
        return number_format.NOTHING
    estimate = Estimate(value, None, 1)
    return number_format.metric(estimate) if digits == number_format.DIGITS else number_format.amount(estimate, digits)


def _seconds(workspace: Workspace, run: RunRecord) -> float | None:
    """From the start of its process to its end; from its submission where its folder is not here.

    None where it has not ended, or no process began.
    """
    job = JobFolder(workspace.jobs / run.id)
    if run.ended is None or (job.path.is_dir() and not job.claimed()):
        return None
    started = job.started()
    return max(0.0, run.ended - (started.started if started else run.started))


def _failure(run: RunRecord) -> Remark:
    tags = run.tags
    why, cause = tags.get(names.TAG_FAILURE, "failed"), tags.get(names.TAG_CAUSE, "its process died")
    seed = tags.get(names.TAG_SEED, "")
    cause = f"{cause[:1].upper()}{cause[1:].rstrip('.')}"
    return Remark(f"Seed {seed}: {why}. {cause}. {tags.get(names.TAG_ADVICE, '')}".strip(), trouble=True)


def _drawn(by_seed: Sequence[SeedResult], curves: dict[str, MetricCurve]) -> list[DrawnCurve]:
    """A line a seed; behind their mean where there are several."""
    runs = [(result.seed, curves[result.run.id]) for result in by_seed if result.run and curves[result.run.id].values]
    mean = mean_curve([curve for _, curve in runs], AXIS)
    drawn = [
        DrawnCurve(f"seed {seed}", *curve.on(AXIS), 0 if mean else i, faint=mean is not None)
        for i, (seed, curve) in enumerate(runs)
    ]
    return drawn if mean is None else [*drawn, DrawnCurve("mean", mean.x, mean.mean, 0, low=mean.low, high=mean.high)]
