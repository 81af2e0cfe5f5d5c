"""From a notebook and what its workspace knows of it to a `Document`."""

import re
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from scalebook.training.claims.evidence import Witness
from scalebook.training.claims.judging import judge_all
from scalebook.training.claims.written import without_marks
from scalebook.training.config.description import Description
from scalebook.training.export.claims import claim_blocks
from scalebook.training.export.comparisons import comparison_blocks
from scalebook.training.export.document import Block, CellHead, Document, Remark, SourceText, Written, cut
from scalebook.training.export.environment import environment_blocks
from scalebook.training.export.experiments import experiment_part, moment
from scalebook.training.export.searches import search_blocks
from scalebook.training.notebook.cells import BrokenCell, ClaimCell, ComparisonCell, ExperimentCell, Note
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking.reading import RunReader, RunRecord
from scalebook.training.workspace import Workspace

HOMES: Final = re.compile(r"(?<![\w+=])(?:/(?:home|Users)/[^/\s\"'<>|:;,)\]}]+|/root)(?![\w.-])")
"""Anybody's home folder, at the beginning of a path: what stands before it is no part of one, nor of base64."""

PASSWORDS: Final = re.compile(r"(://[^\s/:@\"']*:)[^\s@/\"']+(?=@)|(\bpassword=)[^\s&\"']+", re.IGNORECASE)
"""Of the address of a database, which a search may name."""


def gather(workspace: Workspace, reader: RunReader, stored: Stored, description: Description) -> Document:
    """The document of a notebook as it stands, with the latest results. It reads, and starts nothing.

    Home folders and the workspace's own are written `~` and `.`, wherever they stand, passwords of addresses `***`.
    ConfigError where the store or the settings cannot be read; a search that cannot be read says so in its place.
    """
    nb, name = stored.notebook, stored.path.name
    blocks: list[Block] = []
    runs: list[RunRecord] = []
    judged = judge_all(Witness(workspace, reader, name, nb, description))
    for cell in nb.cells:
        if isinstance(cell, Note):
            blocks.append(Written(without_marks(cell.source)))
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
            blocks += [Remark(cell.message, trouble=True), SourceText("Text", cut(cell.source), "", folded=False)]
        else:
            blocks += search_blocks(workspace, reader, name, nb, cell, description)
    blocks += environment_blocks(runs, nb, name, workspace.settings.modules)
    document = Document(nb.title, name, nb.text, moment(time.time()), blocks)
    return published(document, {str(workspace.root.resolve()): ".", str(Path.home()): "~"})


def published(document: Document, known: Mapping[str, str]) -> Document:
    """The document without private paths: known folders renamed as `known` says, homes as `~`, passwords as `***`."""
    cleaned = clean(document, known)
    assert isinstance(cleaned, Document)
    return cleaned


def clean(part: Any, known: Mapping[str, str]) -> Any:
    """The same without private paths, as `published` has it; of a text, or of what holds texts."""
    if isinstance(part, str):
        for folder, word in known.items():
            if folder != "/":
                part = re.sub(rf"(?<![\w+=]){re.escape(folder)}(?![\w.-])", word, part)
        return PASSWORDS.sub(r"\1\2***", HOMES.sub("~", part))
    if isinstance(part, list | tuple):
        return [clean(item, known) for item in part]
    if isinstance(part, dict):
        return {key: clean(value, known) for key, value in part.items()}
    if isinstance(part, Document | Block):
        return replace(part, **{field.name: clean(getattr(part, field.name), known) for field in fields(part)})
    return part
