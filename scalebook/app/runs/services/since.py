"""A run beside its experiment as it stands now: what has changed since, and the other runs of it."""

from collections.abc import Mapping
from typing import Any

from scalebook.app.shared import notebooks
from scalebook.app.shared.words import plain
from scalebook.training.config.description import Description
from scalebook.training.config.identity import config_hash
from scalebook.training.errors import ConfigError
from scalebook.training.notebook.cells import ExperimentCell
from scalebook.training.notebook.comparison import differences, meanings
from scalebook.training.notebook.results import changed_since
from scalebook.training.own_modules import CodeNow
from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunReader, RunRecord
from scalebook.training.workspace import Workspace

OF_A_RUN = ("seed_everything", "ckpt_path")
"""Keys that belong to a run and not to its experiment."""
MOST = 50


def cell_of(workspace: Workspace, record: RunRecord) -> ExperimentCell | None:
    """The experiment that it is a run of, as its notebook says now; None where that is gone or cannot be read."""
    if not (record.notebook and record.cell):
        return None
    known = {path.name: path for path in workspace.notebooks()}
    try:
        return (
            notebooks.read(known[record.notebook]).notebook.experiment(record.cell)
            if record.notebook in known
            else None
        )
    except ConfigError:
        return None


def changes(
    record: RunRecord, ran: Mapping[str, Any], cell: ExperimentCell, description: Description
) -> list[str] | None:
    """What of the experiment's config and modules has changed since the run, in words; None where the run is not stale.

    `ran`: the config of the run.
    """
    code = CodeNow(description.folder)
    if not changed_since(record, config_hash(cell.config, description), code):
        return None
    files = code.changed(record.tags.get(names.TAG_MODULES, ""))
    differing = differences(meanings({"then": ran, "now": cell.config}, description))
    words = [_words(key, values) for key, values in differing if key not in OF_A_RUN]
    return [*words, *(f"{file} is not what it was" for file in files)]


def _words(key: str, values: Mapping[str, Any]) -> str:
    """`optimizer.lr was 0.01 and is now 0.001`."""
    then, now = values.get("then"), values.get("now")
    if then is None:
        return f"{key} is now {plain(now)}, and was not set"
    return f"{key} was {plain(then)} and is now {'not set' if now is None else plain(now)}"


def others(reader: RunReader, record: RunRecord) -> list[RunRecord]:
    """All runs of its experiment, of any config and seed, itself among them, the newest first; MOST at most."""
    if not (record.notebook and record.cell) or names.TAG_TRIAL in record.tags:
        return [record]
    return reader.runs(notebook=record.notebook, cell=record.cell, limit=MOST)
