"""Gathers a notebook and its results in the workspace into a `Document`: each comparison with its table, charts and
differences, each search with its plan, best trials and map.
"""

import json
import re
import shlex
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from scalebook.training.base import ConfigError, Workspace, duration
from scalebook.training.base.files import yaml_flow
from scalebook.training.experiments import Description
from scalebook.training.experiments.search import SearchSpec, summary
from scalebook.training.notebook import number_format
from scalebook.training.notebook.cells import (
    AnswerCell,
    Axis,
    BrokenCell,
    ClaimCell,
    ComparisonCell,
    ExperimentCell,
    Note,
    Notebook,
    SearchCell,
)
from scalebook.training.notebook.claims import claim_table
from scalebook.training.notebook.claims.claim_locks import names_of
from scalebook.training.notebook.claims.evidence import EvidenceReader
from scalebook.training.notebook.claims.judging import Judgement, judge_all
from scalebook.training.notebook.claims.written_tables import WrittenResult, without_marks, written
from scalebook.training.notebook.comparison import Comparison, compare
from scalebook.training.notebook.comparison_table import filled, heading, remarks
from scalebook.training.notebook.export.document import (
    Block,
    CellHead,
    Chart,
    DataTable,
    Document,
    ExportedAnswer,
    Facts,
    Heading,
    Headline,
    Remark,
    SourceText,
    Summary,
    UserMarkdown,
    claim_headline,
    cut_lines,
)
from scalebook.training.notebook.export.experiments import config_of, experiment_part, moment
from scalebook.training.notebook.store import Stored
from scalebook.training.search import SearchFolder, search_folder, search_requests
from scalebook.training.search.map import MOST_MARKS, landscape, map_figure
from scalebook.training.search.study import STATES, Tags, TrialRecord, at_rest, best, own_values, read_study
from scalebook.training.tracking import (
    DrawnCurve,
    Estimate,
    RunReader,
    RunRecord,
    drawing,
    mean_curve,
    names,
    own_metrics,
)

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
    stale = search_requests.what_changed(
        request.identity, request.modules, cell.body, nb.base(cell, description), description
    )
    blocks: list[Block] = [CellHead("search", cell.name, [folder.standing(), *(["stale"] if stale else [])])]
    if stale:
        blocks.append(Remark(f"Stale: {stale}.", trouble=True))
    try:
        spec = folder.spec(description)
        blocks += [
            *_plan(spec, folder),
            *_found(_trials(folder, spec), spec, own_values.logging_own(reader, folder.id)),
        ]
    except ConfigError as error:
        blocks.append(Remark(f"This search cannot be read: {error}", trouble=True))
    return [*blocks, config_of(cell.source)]


def _trials(folder: SearchFolder, spec: SearchSpec) -> list[TrialRecord]:
    folder.require_trust(reading=True)
    request = folder.request()
    records = read_study(request.storage, request.study, spec)
    return at_rest(records) if folder.state() in search_folder.ENDED else records


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
    value += f" {own_metrics.SIGN}" if 0 in own_values.own_values(winner, spec, tags) else ""
    words = f"Best: {goal.name} {value} at {summary(spec, winner.point)} (trial {winner.number}). Trials: {counted}."
    sign = 1 if goal.lower else -1
    ranked = sorted(
        (record for record in records if record.state == "finished"), key=lambda record: sign * record.values[0]
    )
    head = ["trial", *(column.name for column in spec.space), *(column.name for column in spec.objectives), "took"]
    rows = [_row(record, spec, own_values.own_values(record, spec, tags)) for record in ranked[:BEST]]
    numeric = [0, *range(1 + len(spec.space), len(head))]
    blocks: list[Block] = [Remark(words), DataTable(head, rows, numeric, 0)]
    if any(own_values.own_values(record, spec, tags) for record in [winner, *ranked[:BEST]]):
        blocks.append(Remark(f"{own_metrics.SIGN} {own_metrics.WORDS}"))
    if drawn := map_figure(records, spec):
        over = " and ".join(landscape.axes(spec)[:2])
        blocks.append(Chart(drawing.as_svg(drawn, f"{goal.name} over {over}"), f"{goal.name} over the search's space"))
        if len(records) > MOST_MARKS:
            blocks.append(
                Remark(f"The map shows the first {MOST_MARKS:,} of {len(records):,} trials and the best trial.")
            )
    return blocks


def _row(record: TrialRecord, spec: SearchSpec, own: Collection[int]) -> list[str]:
    """The spread is the first objective's. `own`: the objectives whose values have the sign."""
    point = [each.label(record.point[each.name]) if each.name in record.point else "" for each in spec.space]
    values = [
        number_format.metric(Estimate(value, record.spread if i == 0 else None, spec.seeds))
        + (f" {own_metrics.SIGN}" if i in own else "")
        for i, value in enumerate(record.values)
    ]
    return [str(record.number), *point, *values, duration(record.seconds) or number_format.NOTHING]


MOST_ROWS: Final = 100
MOST_DIFFERENCES: Final = 60
LONGEST_VALUE: Final = 200


def comparison_blocks(
    reader: RunReader,
    notebook: str,
    nb: Notebook,
    cell: ComparisonCell,
    description: Description,
    judged: Mapping[str, Judgement] = MappingProxyType({}),
) -> list[Block]:
    """The blocks of a comparison. `notebook` is the file's name, `judged` its claims."""
    shortened = replace(cell, runs=[*dict.fromkeys(cell.runs)][:MOST_ROWS])
    comparison = compare(reader, notebook, nb, shortened, description, judged=judged)
    columns = filled(comparison)
    rows = [[column.cell(line) for column in columns] for line in comparison.rows]
    numeric = [i for i, column in enumerate(columns) if not column.left_aligned]
    head = [f"{column.above} {column.head}".strip() for column in columns]
    blocks: list[Block] = [CellHead("comparison", cell.name), Remark(heading(comparison))]
    blocks.append(DataTable(head, rows, numeric, _winner(comparison)))
    blocks += [Remark(remark) for remark in remarks(comparison)]
    if len(shortened.runs) < len(cell.runs):
        blocks.append(Remark(f"{len(shortened.runs)} of the {len(cell.runs)} experiments in the cell are shown."))
    for axis in dict.fromkeys(cell.x):
        words, log = f"{comparison.metric} against {axis}", cell.scale == "log"
        if drawn := drawing.curve_figure(_drawn(comparison, axis), axis, comparison.metric, comparison.target, log=log):
            blocks.append(Chart(drawing.as_svg(drawn, words), f"{cell.name}: {words}"))
    return [*blocks, *_differences(comparison), config_of(cell.source)]


def _winner(comparison: Comparison) -> int | None:
    sign = 1 if comparison.lower_is_better else -1
    scores = [(sign * line.best.mean, i) for i, line in enumerate(comparison.rows) if line.best is not None]
    return min(scores)[1] if len(scores) > 1 else None


def _drawn(comparison: Comparison, axis: Axis) -> list[DrawnCurve]:
    """A colour a row; for several seeds their mean in its band, the seeds faint behind it."""
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
        blocks.append(Remark(f"The first {MOST_DIFFERENCES} of {len(rows)} keys are shown."))
    return blocks


def _value(value: Any) -> str:
    words = "–" if value is None else value if isinstance(value, str) else yaml_flow.flow(value)
    return words if len(words) <= LONGEST_VALUE else f"{words[:LONGEST_VALUE]}…"


HOMES: Final = re.compile(r"(?<![\w+=])(?:/(?:home|Users)/[^/\s\"'<>|:;,)\]}]+|/root)(?![\w.-])")
"""Anybody's home folder, at the beginning of a path: what stands before it is no part of one, nor of base64."""

PASSWORDS: Final = re.compile(r"(://[^\s/:@\"']*:)[^\s@/\"']+(?=@)|(\bpassword=)[^\s&\"']+", re.IGNORECASE)
"""Of the address of a database, which a search may name."""

PACKAGES: Final = {
    "scalebook": "Scalebook", "python": "Python", "torch": "PyTorch", "lightning": "Lightning", "mlflow": "MLflow",
    "optuna": "Optuna", "numpy": "NumPy",
}  # fmt: skip
LONGEST: Final = 100
MOST_KINDS: Final = 5


def gather(
    workspace: Workspace,
    reader: RunReader,
    stored: Stored,
    description: Description,
    answers: Mapping[str, ExportedAnswer] | None = None,
) -> Document:
    """The document of a notebook as it stands, with the latest results. It starts nothing, and writes only looks.
    `answers`: what is known of its questions, by the names of their cells.

    Home folders and the workspace's own are written `~` and `.`, wherever they stand, passwords of addresses `***`.
    ConfigError where the store or the settings cannot be read; a search that cannot be read says so in its place.
    """
    nb, name = stored.notebook, stored.path.name
    blocks: list[Block] = []
    runs: list[RunRecord] = []
    answers = answers or {}
    judged = judge_all(EvidenceReader(workspace, reader, name, nb, description))
    recorded = {key: result for key, result in written(nb).items() if not _has_runs(judged[key])}
    elsewhere = {cell for claim in nb.claims() if claim.name in recorded for cell in names_of(claim)}
    for cell in nb.cells:
        if isinstance(cell, Note):
            blocks.append(UserMarkdown(without_marks(cell.source)))
        elif isinstance(cell, ExperimentCell):
            part = experiment_part(workspace, reader, name, nb, cell, description)
            blocks += _not_here(part.blocks) if cell.name in elsewhere and not part.runs else part.blocks
            runs += part.runs
        elif isinstance(cell, ComparisonCell):
            blocks += comparison_blocks(reader, name, nb, cell, description, judged)
        elif isinstance(cell, ClaimCell):
            blocks += claim_blocks(judged[cell.name], recorded.get(cell.name))
        elif isinstance(cell, AnswerCell):
            blocks += answer_blocks(cell, answers.get(cell.name))
        elif isinstance(cell, BrokenCell):
            blocks.append(CellHead(cell.kind, cell.name, ["cannot be read"]))
            blocks += [Remark(cell.message, trouble=True), SourceText("Text", cut_lines(cell.source), "", folded=False)]
        else:
            part_blocks = search_blocks(workspace, reader, name, nb, cell, description)
            blocks += _not_here(part_blocks) if cell.name in elsewhere else part_blocks
    answered = [Headline("answer", key, one.sentence, [one.state]) for key, one in answers.items()]
    blocks = _summarized(blocks, [*answered, *_headlines(judged, recorded)])
    blocks += environment_blocks(runs, nb, name, workspace.settings.modules)
    document = Document(nb.title, name, nb.text, moment(time.time()), blocks)
    return published(document, {str(workspace.root.resolve()): ".", str(Path.home()): "~"})


WRITTEN: Final = "The runs wrote this result into the notebook. The runs themselves are not in this document"
"""Of a verdict."""


def _has_runs(judgement: Judgement) -> bool:
    return any(row.evidence.run_ids or row.evidence.earlier for row in judgement.rows)


def _not_here(blocks: Sequence[Block]) -> list[Block]:
    """The blocks of a cell without runs, of which the notebook has results that runs have written."""
    head, *rest = blocks
    if isinstance(head, CellHead) and list(head.states) == ["not run"]:
        return [replace(head, states=["runs not here"]), *rest]
    return [*blocks]


def _headlines(judged: Mapping[str, Judgement], recorded: Mapping[str, WrittenResult]) -> list[Headline]:
    """One for each claim; those without any run have one together."""
    waiting = [name for name, one in judged.items() if name not in recorded and not _has_runs(one)]
    headlines = [_headline(one, recorded.get(name)) for name, one in judged.items() if name not in waiting]
    if waiting:
        words = f"{len(waiting)} claim{' has' if len(waiting) == 1 else 's have'} no runs here: {', '.join(waiting)}"
        headlines.append(Headline("claim", waiting[0], words, ["not run"]))
    return headlines


def _headline(judgement: Judgement, recorded: WrittenResult | None) -> Headline:
    name = judgement.cell.name
    if recorded is not None:
        return claim_headline(name, recorded.states, recorded.statement, recorded.table, WRITTEN)
    table = [claim_table.head(judgement), *claim_table.cells(judgement)]
    return claim_headline(name, claim_table.verdicts(judgement), judgement.statement, table)


def _summarized(blocks: list[Block], headlines: Sequence[Headline]) -> list[Block]:
    """With the summary before the notebook's text, but after its title if it begins with one."""
    if not headlines:
        return blocks
    summary, first = Summary(headlines), blocks[0]
    if not isinstance(first, UserMarkdown) or not first.source.lstrip().startswith("# "):
        return [summary, *blocks]
    title, _, text = first.source.lstrip().partition("\n")
    return [UserMarkdown(f"{title}\n"), summary, *([UserMarkdown(text)] if text.strip() else []), *blocks[1:]]


def answer_blocks(cell: AnswerCell, answer: ExportedAnswer | None) -> list[Block]:
    """The blocks of a question and what is known of it."""
    if answer is None:
        return [CellHead("answer", cell.name), config_of(cell.source)]
    table = [DataTable(answer.table[0], answer.table[1:], range(1, len(answer.table[0]) - 2))] if answer.table else []
    return [
        CellHead("answer", cell.name, [answer.state]),
        Remark(answer.question),
        Remark(answer.sentence),
        *([Chart(answer.chart, f"{cell.name}: {answer.sentence}")] if answer.chart else []),
        *table,
        *(Remark(remark) for remark in answer.remarks),
        config_of(cell.source),
    ]


def claim_blocks(judgement: Judgement, recorded: WrittenResult | None = None) -> list[Block]:
    """The blocks of a claim, whose head has the verdict as its state. `recorded`: what stands in the place of its runs,
    which are not here."""
    if recorded is not None:
        return [
            CellHead("claim", judgement.cell.name, recorded.states),
            Remark(recorded.statement),
            Remark(f"{WRITTEN}."),
            config_of(judgement.cell.source),
        ]
    rows = claim_table.cells(judgement)
    return [
        CellHead("claim", judgement.cell.name, claim_table.verdicts(judgement)),
        Remark(judgement.sentence),
        DataTable(claim_table.head(judgement), rows, claim_table.numeric(judgement)),
        *(Remark(remark) for remark in [*claim_table.guessed_directions(judgement), *claim_table.remarks(judgement)]),
        config_of(judgement.cell.source),
    ]


def published(document: Document, folders: Mapping[str, str]) -> Document:
    """The document without private paths: `folders` renamed as they say, homes as `~`, passwords as `***`."""
    cleaned = clean(document, folders)
    assert isinstance(cleaned, Document)
    return cleaned


def clean(part: Any, folders: Mapping[str, str]) -> Any:
    """A text, or an object that holds texts, without private paths, as `published` has it."""
    if isinstance(part, str):
        for folder, word in folders.items():
            if folder != "/":
                part = re.sub(rf"(?<![\w+=]){re.escape(folder)}(?![\w.-])", word, part)
        return PASSWORDS.sub(r"\1\2***", HOMES.sub("~", part))
    if isinstance(part, list | tuple):
        return [clean(item, folders) for item in part]
    if isinstance(part, dict):
        return {key: clean(value, folders) for key, value in part.items()}
    if isinstance(part, Document | Block | Headline):
        return replace(part, **{field.name: clean(getattr(part, field.name), folders) for field in fields(part)})
    return part


# --- what the runs ran on, as recorded with them, and how to run them again ------------------------------------------


def environment_blocks(runs: Sequence[RunRecord], nb: Notebook, name: str, modules: Sequence[str]) -> list[Block]:
    """`name` is the notebook's file name, `modules` what the workspace's settings name."""
    blocks: list[Block] = [Heading("Environment"), *_recorded(runs), Heading("Run it again")]
    needed = "Scalebook" + (f", the modules {', '.join(modules)} from the notebook's folder," if modules else "")
    blocks.append(Remark(f"You need {needed} and this notebook's text in a file called {name}."))
    return [*blocks, SourceText("Commands", "\n".join(_commands(nb, shlex.quote(name))), "sh", folded=False)]


def _recorded(runs: Sequence[RunRecord]) -> list[Block]:
    if not runs:
        return [Remark("No run is recorded.")]
    versions = [_versions(run.tags.get(names.TAG_VERSIONS, "")) for run in runs]
    pairs = [(title, _said(version.get(key, "") for version in versions)) for key, title in PACKAGES.items()]
    pairs.append(("machine", _said(run.tags.get(names.TAG_MACHINE, "") for run in runs)))
    pairs.append(("commit", _said(run.tags.get(names.TAG_COMMIT, "")[:12] for run in runs)))
    facts = [(key, value) for key, value in pairs if value]
    count = f"This was recorded with {len(runs)} run{'' if len(runs) == 1 else 's'} of this document."
    return [Facts(facts), Remark(count)] if facts else [Remark("No run recorded its environment.")]


def _versions(text: str) -> dict[str, str]:
    """What a run's tag says; nothing where somebody else has written it in another way."""
    try:
        versions = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return {str(key): str(value)[:LONGEST] for key, value in versions.items()} if isinstance(versions, dict) else {}


def _said(values: Iterable[str]) -> str:
    """`2.9.0`; where the runs differ `2.9.0 (3 runs), 2.8.0 (1 run)`."""
    many = Counter(value[:LONGEST] for value in values if value)
    if len(many) < 2:
        return next(iter(many), "")
    parts = [f"{value} ({count} run{'' if count == 1 else 's'})" for value, count in many.most_common(MOST_KINDS)]
    return ", ".join([*parts, *(["…"] if len(many) > MOST_KINDS else [])])


def _commands(nb: Notebook, file: str) -> list[str]:
    commands = [f"scalebook notebook check {file}"]
    if nb.experiments():
        commands.append(f"scalebook notebook run {file}")
    return [*commands, *(f"scalebook search run {file} --cell {shlex.quote(search.name)}" for search in nb.searches())]
