"""A comparison as aligned plain text of at most 120 columns: for the terminal and for documents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from scalebook.training.base.files import terminal
from scalebook.training.experiments import strategy_words
from scalebook.training.notebook import number_format, relative
from scalebook.training.notebook.comparison import Comparison
from scalebook.training.notebook.result_row import ExperimentRow
from scalebook.training.tracking import Estimate, names, own_metrics

TABLE_WIDTH: Final = 120


@dataclass(frozen=True)
class Column:
    """One column. `above` is the first line of its head; the highest `rank` is left out first where space is short."""

    head: str
    cell: Callable[[ExperimentRow], str]
    above: str = ""
    left_aligned: bool = False
    rank: int = 0


def comparison_text(comparison: Comparison) -> str:
    """Heading, table and remarks; ends without a line end."""
    columns = filled(comparison)
    lines = _drawn(columns, comparison.rows)
    while max(map(len, lines)) > TABLE_WIDTH and any(column.rank for column in columns):
        columns.remove(max(columns, key=lambda column: column.rank))
        lines = _drawn(columns, comparison.rows)
    notes = remarks(comparison)
    return "\n".join([heading(comparison), "", *lines, *(["", *notes] if notes else [])])


def filled(comparison: Comparison) -> list[Column]:
    """The columns with a value in any row."""
    columns = _columns(comparison)
    return [column for column in columns if column.rank == 0 or any(_filled(column, row) for row in comparison.rows)]


def _columns(comparison: Comparison) -> list[Column]:
    columns = [
        Column("experiment", lambda row: row.experiment, left_aligned=True),
        Column("strategy", _strategy, left_aligned=True),
        Column("x batch", _workers, "workers"),
        Column(
            "rate",
            lambda row: f"{row.learning_rate:g}" if row.learning_rate else number_format.NOTHING,
            "learning",
            rank=8,
        ),
        Column("best", lambda row: _marked(row, row.best)),
    ]
    if comparison.target is not None:
        for place, axis in enumerate(comparison.axes):
            above = f"to {comparison.target:g}:" if place == 0 else ""
            columns.append(Column(axis, _to_target(axis, place == 0), above, rank=2 if place else 0))
    else:
        columns.append(Column("final", lambda row: _marked(row, row.final), rank=5))
    above_relative = relative.head(row.relative for row in comparison.rows)
    columns += [
        Column(relative.WORDS[figure], _relative(figure), above_relative, rank=3 if place else 1)
        for place, figure in enumerate(relative.shown(row.relative for row in comparison.rows))
    ]
    return [
        *columns,
        Column("updates/s", lambda row: number_format.mean(row.updates_per_second), rank=6),
        Column("samples/s", lambda row: number_format.mean(row.samples_per_second), rank=3),
        Column("mean", lambda row: number_format.mean(row.staleness_mean), "staleness", rank=4),
        Column("p95", lambda row: number_format.mean(row.staleness_p95), "", rank=7),
    ]


def _relative(figure: relative.RelativeFigure) -> Callable[[ExperimentRow], str]:
    return lambda row: row.relative.text(figure)


def _to_target(axis: str, first: bool) -> Callable[[ExperimentRow], str]:
    return lambda row: number_format.to_target(
        {str(key): value for key, value in row.to_target.items()}.get(axis), first
    )


def _strategy(row: ExperimentRow) -> str:
    return strategy_words(row.strategy, row.rule, simulated=row.is_simulated) or number_format.NOTHING


def _marked(row: ExperimentRow, value: Estimate | None) -> str:
    text = number_format.metric(value)
    return f"{text} {own_metrics.SIGN}" if row.is_own and value is not None else text


def _workers(row: ExperimentRow) -> str:
    if row.workers is None:
        return number_format.NOTHING
    return f"{row.workers} x {row.batch_per_worker}" if row.batch_per_worker else str(row.workers)


def _filled(column: Column, row: ExperimentRow) -> bool:
    return column.cell(row) != number_format.NOTHING


def _drawn(columns: Sequence[Column], rows: Sequence[ExperimentRow]) -> list[str]:
    cells = [[column.cell(row) for column in columns] for row in rows]
    above = [column.above for column in columns]
    heads = [column.head for column in columns]
    right = [i for i, column in enumerate(columns) if not column.left_aligned]
    return terminal.aligned([above, heads, *cells], right, rule=2)


def heading(comparison: Comparison) -> str:
    """What is compared, and what its figures are."""
    better = comparison.direction.words
    target = "" if comparison.target is None else f", target {comparison.target:g}"
    name = f"{comparison.name}: " if comparison.name else ""
    most = max((len(row.run_ids) for row in comparison.rows), default=0)
    seeds = f"; mean of {most} seeds ± half the width of the 95 % interval" if most > 1 else ""
    return f"{name}{comparison.metric} ({better}{target}){seeds}"


def remarks(comparison: Comparison) -> list[str]:
    """What the figures do not show: runs that are missing or missed the target, and how much a single seed is worth."""
    remarks_ = []
    for row in comparison.rows:
        if row.outcome != "finished":
            have = f"{len(row.run_ids)} of {row.seeds} runs, {row.outcome}"
            remarks_.append(f"{row.experiment}: {have}{f' ({row.note})' if row.note else ''}")
    remarks_ += [f"{row.experiment}: {why}" for row in comparison.rows for why in (row.shared, row.lost) if why]
    short = [
        row.experiment
        for row in comparison.rows
        if any(amount.reached < amount.runs for amount in row.to_target.values())
    ]
    if short:
        remarks_.append(
            f"'n of m' means that n of m runs reached the target, so there is no amount for {', '.join(short)}."
        )
    remarks_ += relative.remarks({row.experiment: row.relative for row in comparison.rows if row.run_ids})
    if any(row.is_own for row in comparison.rows):
        remarks_.append(f"{own_metrics.SIGN} {own_metrics.WORDS}")
    if words := names.time_words([row.is_simulated for row in comparison.rows]):
        remarks_.append(words)
    if comparison.rows and all(len(row.run_ids) <= 1 for row in comparison.rows):
        remarks_.append(
            "Each experiment has only one seed, so small differences are not resolved. To run more seeds, use "
            "`--seeds 3`."
        )
    return remarks_
