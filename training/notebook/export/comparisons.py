"""A comparison of the document: its table, a chart for each of its axes, and what differs."""

from dataclasses import replace
from typing import Any, Final

from scalebook.training.base.files.yaml_flow import flow
from scalebook.training.experiments.description import Description
from scalebook.training.notebook.cells import Axis, ComparisonCell, Notebook
from scalebook.training.notebook.comparison import Comparison, compare
from scalebook.training.notebook.comparison_table import filled, heading, remarks
from scalebook.training.notebook.export.document import Block, CellHead, Chart, DataTable, Remark
from scalebook.training.notebook.export.experiments import config_of
from scalebook.training.tracking.curves import mean_curve
from scalebook.training.tracking.drawing import DrawnCurve, as_svg, curve_figure
from scalebook.training.tracking.run_reader import RunReader

MOST_ROWS: Final = 100
MOST_DIFFERENCES: Final = 60
LONGEST_VALUE: Final = 200


def comparison_blocks(
    reader: RunReader, notebook: str, nb: Notebook, cell: ComparisonCell, description: Description
) -> list[Block]:
    """The blocks of a comparison. `notebook` is the file's name."""
    shortened = replace(cell, runs=[*dict.fromkeys(cell.runs)][:MOST_ROWS])
    comparison = compare(reader, notebook, nb, shortened, description)
    columns = filled(comparison)
    rows = [[column.cell(line) for column in columns] for line in comparison.rows]
    numeric = [i for i, column in enumerate(columns) if not column.left_aligned]
    head = [f"{column.above} {column.head}".strip() for column in columns]
    blocks: list[Block] = [CellHead("comparison", cell.name), Remark(heading(comparison))]
    blocks.append(DataTable(head, rows, numeric, _winner(comparison)))
    blocks += [Remark(remark) for remark in remarks(comparison)]
    if len(shortened.runs) < len(cell.runs):
        blocks.append(Remark(f"{len(shortened.runs)} of the {len(cell.runs)} names that the cell has."))
    for axis in dict.fromkeys(cell.x):
        words, log = f"{comparison.metric} against {axis}", cell.scale == "log"
        if drawn := curve_figure(_drawn(comparison, axis), axis, comparison.metric, comparison.target, log=log):
            blocks.append(Chart(as_svg(drawn, words), f"{cell.name}: {words}"))
    return [*blocks, *_differences(comparison), config_of(cell.source)]


def _winner(comparison: Comparison) -> int | None:
    sign = 1 if comparison.lower_is_better else -1
    scores = [(sign * line.best.mean, i) for i, line in enumerate(comparison.rows) if line.best is not None]
    return min(scores)[1] if len(scores) > 1 else None


def _drawn(comparison: Comparison, axis: Axis) -> list[DrawnCurve]:
    """A colour a row; for several seeds their mean with its interval, the seeds faint behind it."""
    by_run = {curve.run_id: curve for curve in comparison.curves}
    drawn: list[DrawnCurve] = []
    for hue, line in enumerate(comparison.rows):
        curves = [by_run[run] for run in line.run_ids if by_run[run].values]
        mean = mean_curve(curves, axis)
        name = line.experiment
        drawn += [DrawnCurve(name, *curve.on(axis), hue, faint=mean is not None) for curve in curves]
        if mean is not None:
            drawn.append(DrawnCurve(name, mean.x, mean.mean, hue, low=mean.low, high=mean.high))
    return drawn


def _differences(comparison: Comparison) -> list[Block]:
    """Only the keys whose values differ, one a row."""
    names = [line.experiment for line in comparison.rows]
    names = [name for name in dict.fromkeys(names) if any(name in values for _, values in comparison.differences)]
    if not comparison.differences or not names:
        return []
    rows = [[key, *(_value(values.get(name)) for name in names)] for key, values in comparison.differences]
    blocks: list[Block] = [Remark("Where their configs differ:"), DataTable(["key", *names], rows[:MOST_DIFFERENCES])]
    if len(rows) > MOST_DIFFERENCES:
        blocks.append(Remark(f"The first {MOST_DIFFERENCES} of {len(rows)} keys."))
    return blocks


def _value(value: Any) -> str:
    words = "–" if value is None else value if isinstance(value, str) else flow(value)
    return words if len(words) <= LONGEST_VALUE else f"{words[:LONGEST_VALUE]}…"
