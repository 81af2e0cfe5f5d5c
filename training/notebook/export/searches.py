"""A search of the document: its plan, the best point, the best trials, the map."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from scalebook.training.base.durations import duration
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.estimate import Estimate
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.search.point import summary
from scalebook.training.experiments.search.types import SearchSpec
from scalebook.training.notebook import number_format
from scalebook.training.notebook.cells import Notebook, SearchCell
from scalebook.training.notebook.export.document import Block, CellHead, Chart, DataTable, Facts, Remark
from scalebook.training.notebook.export.experiments import config_of, moment
from scalebook.training.search import search_requests
from scalebook.training.search.map.landscape import axes
from scalebook.training.search.map.map_pictures import MOST_MARKS, map_figure
from scalebook.training.search.search_folder import ENDED, SearchFolder
from scalebook.training.search.study.own_values import Tags, logging_own, own_values
from scalebook.training.search.study.study_reader import read
from scalebook.training.search.study.trials import STATES, TrialRecord, at_rest, best
from scalebook.training.tracking.drawing import as_svg
from scalebook.training.tracking.own_metrics import SIGN, WORDS
from scalebook.training.tracking.run_reader import RunReader

BEST: Final = 10
"""Trials in the table."""


def search_blocks(
    workspace: Workspace, reader: RunReader, notebook: str, nb: Notebook, cell: SearchCell, description: Description
) -> list[Block]:
    """The blocks of a cell's newest search. `notebook` is the file's name. What cannot be read says so in its place."""
    folder = search_requests.of_cell(workspace, notebook, cell.name)
    if folder is None:
        return [CellHead("search", cell.name, ["not run"]), config_of(cell.source)]
    request = folder.request()
    stale = search_requests.what_changed(request.identity, request.modules, cell.body, nb.base(cell), description)
    blocks: list[Block] = [CellHead("search", cell.name, [folder.standing(), *(["stale"] if stale else [])])]
    if stale:
        blocks.append(Remark(f"Stale: {stale}.", trouble=True))
    try:
        spec = folder.spec(description)
        blocks += [*_plan(spec, folder), *_found(_trials(folder, spec), spec, logging_own(reader, folder.id))]
    except ConfigError as error:
        blocks.append(Remark(f"This search cannot be read: {error}", trouble=True))
    return [*blocks, config_of(cell.source)]


def _trials(folder: SearchFolder, spec: SearchSpec) -> list[TrialRecord]:
    folder.require_trust(reading=True)
    request = folder.request()
    records = read(request.storage, request.study, spec)
    return at_rest(records) if folder.state() in ENDED else records


def _plan(spec: SearchSpec, folder: SearchFolder) -> list[Block]:
    goals = [
        f"{objective.name} ({'lower' if objective.lower else 'higher'} is better)" for objective in spec.objectives
    ]
    result = folder.result()
    pairs = [
        ("objective", ", ".join(goals)),
        ("target", "" if spec.target is None else f"{spec.target:g}"),
        ("trials", f"{spec.trials:,}" + (f" of {spec.seeds} seeds" if spec.seeds > 1 else "")),
        ("sampler", f"{spec.sampler}, seed {spec.sampler_seed}"),
        ("pruner", spec.pruner),
        ("batch size", "of each worker" if spec.scaling == "weak" else "of all workers together"),
        ("ended", moment(result.ended) if result else ""),
        ("identity", folder.request().identity),
    ]
    space = DataTable(["dimension", "values"], [[dimension.name, dimension.words()] for dimension in spec.space])
    return [Facts([(name, value) for name, value in pairs if value]), space]


def _found(records: Sequence[TrialRecord], spec: SearchSpec, tags: Tags) -> list[Block]:
    """`tags`: of those runs that have logged a metric which is not computed from all workers' data together."""
    many = Counter(str(record.state) for record in records)
    counted = ", ".join(f"{many[state]:,} {state}" for state in STATES if many[state])
    winner = best(records, spec)
    if winner is None:
        return [Remark(f"No trial has finished with a finite value yet. Trials: {counted or 'none'}.")]
    goal = spec.objectives[0]
    value = number_format.metric(Estimate(winner.values[0], winner.spread, spec.seeds))
    value += f" {SIGN}" if 0 in own_values(winner, spec, tags) else ""
    words = f"Best: {goal.name} {value} at {summary(spec, winner.point)} (trial {winner.number}). Trials: {counted}."
    sign = 1 if goal.lower else -1
    ranked = sorted(
        (record for record in records if record.state == "finished"), key=lambda record: sign * record.values[0]
    )
    head = ["trial", *(column.name for column in spec.space), *(column.name for column in spec.objectives), "took"]
    rows = [_row(record, spec, own_values(record, spec, tags)) for record in ranked[:BEST]]
    numeric = [0, *range(1 + len(spec.space), len(head))]
    blocks: list[Block] = [Remark(words), DataTable(head, rows, numeric, 0)]
    if any(own_values(record, spec, tags) for record in [winner, *ranked[:BEST]]):
        blocks.append(Remark(f"{SIGN} {WORDS}"))
    if drawn := map_figure(records, spec):
        over = " and ".join(axes(spec)[:2])
        blocks.append(Chart(as_svg(drawn, f"{goal.name} over {over}"), f"{goal.name} over the search's space"))
        if len(records) > MOST_MARKS:
            blocks.append(Remark(f"The map is of the first {MOST_MARKS:,} of {len(records):,} trials, and the best."))
    return blocks


def _row(record: TrialRecord, spec: SearchSpec, own: Collection[int]) -> list[str]:
    """The spread is the first objective's. `own`: the objectives whose values have the sign."""
    point = [each.label(record.point[each.name]) if each.name in record.point else "" for each in spec.space]
    values = [
        number_format.metric(Estimate(value, record.spread if i == 0 else None, spec.seeds))
        + (f" {SIGN}" if i in own else "")
        for i, value in enumerate(record.values)
    ]
    return [str(record.number), *point, *values, duration(record.seconds) or number_format.NOTHING]
