"""Gathers a notebook and its results in the workspace into a `Document`."""

import json
import re
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.description import Description
from scalebook.training.notebook.cells import BrokenCell, ClaimCell, ComparisonCell, ExperimentCell, Note, Notebook
from scalebook.training.notebook.claims import claim_table
from scalebook.training.notebook.claims.evidence import EvidenceReader
from scalebook.training.notebook.claims.judging import Judgement, judge_all
from scalebook.training.notebook.claims.written_tables import without_marks
from scalebook.training.notebook.export.comparisons import comparison_blocks
from scalebook.training.notebook.export.document import (
    Block,
    CellHead,
    DataTable,
    Document,
    Facts,
    Heading,
    Remark,
    SourceText,
    UserMarkdown,
    cut_lines,
)
from scalebook.training.notebook.export.experiments import config_of, experiment_part, moment
from scalebook.training.notebook.export.searches import search_blocks
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader, RunRecord

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


def gather(workspace: Workspace, reader: RunReader, stored: Stored, description: Description) -> Document:
    """The document of a notebook as it stands, with the latest results. It reads, and starts nothing.

    Home folders and the workspace's own are written `~` and `.`, wherever they stand, passwords of addresses `***`.
    ConfigError where the store or the settings cannot be read; a search that cannot be read says so in its place.
    """
    nb, name = stored.notebook, stored.path.name
    blocks: list[Block] = []
    runs: list[RunRecord] = []
    judged = judge_all(EvidenceReader(workspace, reader, name, nb, description))
    for cell in nb.cells:
        if isinstance(cell, Note):
            blocks.append(UserMarkdown(without_marks(cell.source)))
        elif isinstance(cell, ExperimentCell):
            part = experiment_part(workspace, reader, name, cell, description)
            blocks += part.blocks
            runs += part.runs
        elif isinstance(cell, ComparisonCell):
            blocks += comparison_blocks(reader, name, nb, cell, description)
        elif isinstance(cell, ClaimCell):
            blocks += claim_blocks(judged[cell.name])
        elif isinstance(cell, BrokenCell):
            blocks.append(CellHead(cell.kind, cell.name, ["cannot be read"]))
            blocks += [Remark(cell.message, trouble=True), SourceText("Text", cut_lines(cell.source), "", folded=False)]
        else:
            blocks += search_blocks(workspace, reader, name, nb, cell, description)
    blocks += environment_blocks(runs, nb, name, workspace.settings.modules)
    document = Document(nb.title, name, nb.text, moment(time.time()), blocks)
    return published(document, {str(workspace.root.resolve()): ".", str(Path.home()): "~"})


def claim_blocks(judgement: Judgement) -> list[Block]:
    """The blocks of a claim, whose head has the verdict as its state."""
    rows = claim_table.cells(judgement)
    return [
        CellHead("claim", judgement.cell.name, claim_table.verdicts(judgement)),
        Remark(judgement.statement),
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
    if isinstance(part, Document | Block):
        return replace(part, **{field.name: clean(getattr(part, field.name), folders) for field in fields(part)})
    return part


# --- what the runs ran on, as recorded with them, and how to run them again ------------------------------------------


def environment_blocks(runs: Sequence[RunRecord], nb: Notebook, name: str, modules: Sequence[str]) -> list[Block]:
    """`name` is the notebook's file name, `modules` what the workspace's settings name."""
    blocks: list[Block] = [Heading("Environment"), *_recorded(runs), Heading("Run it again")]
    needed = "Scalebook" + (f" and {', '.join(modules)}, modules of the notebook's own folder" if modules else "")
    blocks.append(Remark(f"What is needed: {needed}, and this notebook's text in a file {name}."))
    return [*blocks, SourceText("Commands", "\n".join(_commands(nb, shlex.quote(name))), "sh", folded=False)]


def _recorded(runs: Sequence[RunRecord]) -> list[Block]:
    if not runs:
        return [Remark("No run is recorded.")]
    versions = [_versions(run.tags.get(names.TAG_VERSIONS, "")) for run in runs]
    pairs = [(title, _said(version.get(key, "") for version in versions)) for key, title in PACKAGES.items()]
    pairs.append(("machine", _said(run.tags.get(names.TAG_MACHINE, "") for run in runs)))
    pairs.append(("commit", _said(run.tags.get(names.TAG_COMMIT, "")[:12] for run in runs)))
    facts = [(key, value) for key, value in pairs if value]
    count = f"As recorded with {len(runs)} run{'' if len(runs) == 1 else 's'} of this document."
    return [Facts(facts), Remark(count)] if facts else [Remark("The runs have recorded no environment.")]


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
