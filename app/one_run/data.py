"""Where a run comes from, what has changed since, and which files it left to download."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalebook.app.runs.records import leads_out
from scalebook.app.shared import notebooks
from scalebook.app.shared.notebooks import NotebookChoice
from scalebook.app.shared.words import plain
from scalebook.training.base import ConfigError, Workspace, code_changes
from scalebook.training.base.files import safe_reading
from scalebook.training.experiments import Description, Experiment, config_hash
from scalebook.training.jobs import JobFolder
from scalebook.training.notebook import ExperimentCell, Note, changed_since, differences, meanings_by_name
from scalebook.training.search import SearchFolder
from scalebook.training.tracking import RunReader, RunRecord, names

if TYPE_CHECKING:
    from mlflow.entities import FileInfo


@dataclass(frozen=True)
class RunOrigin:
    """What a run was started from. `notebook` is None if there is none, or none any more; `cell` likewise "". `path`
    names both as recorded."""

    notebook: NotebookChoice | None
    cell: str
    search: SearchFolder | None
    trial: str
    path: str


def origin(workspace: Workspace, record: RunRecord) -> RunOrigin:
    """The run's origin. Reads the notebook, to check that the cell still exists."""
    stem, cell = Path(record.notebook or "").stem, record.cell or ""
    choice = notebooks.pick(workspace, stem) if stem else None
    cell_exists = False
    if choice is not None:
        stored, _ = notebooks.load(choice)
        cells = stored.notebook.cells if stored else ()
        cell_exists = any(cell_.name == cell for cell_ in cells if not isinstance(cell_, Note))
    trial = record.tags.get(names.TAG_TRIAL, "")
    parent = record.tags.get(names.TAG_PARENT, "")
    search = SearchFolder(workspace.studies / parent) if trial and "/" not in parent else None
    if search is not None and not search.name():
        search = None
    path = " › ".join(part for part in (choice.title if choice else stem, cell) if part)
    return RunOrigin(choice, cell if cell_exists else "", search, trial, path)


OF_A_RUN = ("seed_everything", "ckpt_path")
"""Config keys of a run that its experiment does not have."""
MOST_OTHERS = 50


def cell_of(workspace: Workspace, record: RunRecord) -> ExperimentCell | None:
    """The run's experiment in its present notebook; None if it is gone or cannot be read."""
    if not (record.notebook and record.cell):
        return None
    paths = {path.name: path for path in workspace.notebooks()}
    try:
        return (
            notebooks.read(paths[record.notebook]).notebook.experiment(record.cell)
            if record.notebook in paths
            else None
        )
    except ConfigError:
        return None


def changes_since(
    record: RunRecord, ran: Experiment, cell: ExperimentCell, description: Description
) -> list[str] | None:
    """The changes of the experiment's config and modules since the run, in words; None if the run is not stale. `ran`:
    what it ran."""
    code = code_changes.CodeNow(description.folder)
    if not changed_since(record, config_hash(cell.experiment(description)), code):
        return None
    files = code.changed(record.tags.get(names.TAG_MODULES, ""))
    differing = differences(meanings_by_name({"then": ran, "now": cell.experiment(description)}))
    words = [_change_words(key, values) for key, values in differing if key not in OF_A_RUN]
    return [*words, *(f"{file} has changed" for file in files)]


def _change_words(key: str, values: Mapping[str, Any]) -> str:
    """`optimizer.lr was 0.01 and is now 0.001`."""
    then, now = values.get("then"), values.get("now")
    if then is None:
        return f"{key} was not set and is now {plain(now)}"
    return f"{key} was {plain(then)} and is now {'not set' if now is None else plain(now)}"


def other_runs(reader: RunReader, record: RunRecord) -> list[RunRecord]:
    """All runs of the run's experiment, itself included, with any config and seed; the newest first, MOST_OTHERS at
    most."""
    if not (record.notebook and record.cell) or names.TAG_TRIAL in record.tags:
        return [record]
    return reader.runs(notebook=record.notebook, cell=record.cell, limit=MOST_OTHERS)


MOST_FILES = 200
MOST_BYTES = 2**31
"""Bytes; the page names the path of a larger file, since a download passes through the server's memory."""
LONGEST_LOG = 2**24
"""Bytes of a log that are searched, from its end."""


@dataclass(frozen=True)
class RunFile:
    """One file of a run. `read` returns its content."""

    name: str
    kind: str
    size: int
    read: Callable[[], bytes]
    path: Path | None = None
    """Its path on this machine, if known."""


def files(reader: RunReader, run_id: str, job: JobFolder | None) -> list[RunFile]:
    """The files to download: checkpoints, the newest first, then artifacts by name; MOST_FILES of each at most."""
    listed = _checkpoints(job) if job else []
    inside = [] if leads_out(reader, run_id) else _artifacts(reader, run_id, "")
    for info in islice(inside, MOST_FILES):
        read = partial(_download, reader, run_id, info.path)
        listed.append(RunFile(info.path, "artifact", info.file_size or 0, read))
    return listed


def _checkpoints(job: JobFolder) -> list[RunFile]:
    paths = [path for path in job.path.rglob("*.ckpt") if path.is_file() and not path.is_symlink()]
    facts = sorted(((path.stat(), path) for path in paths), key=lambda pair: -pair[0].st_mtime)
    return [RunFile(path.name, "checkpoint", fact.st_size, path.read_bytes, path) for fact, path in facts[:MOST_FILES]]


def _artifacts(reader: RunReader, run_id: str, folder: str) -> "Iterator[FileInfo]":
    for info in reader.client.list_artifacts(run_id, folder or None):
        if info.is_dir:
            yield from _artifacts(reader, run_id, info.path)
        else:
            yield info


def _download(reader: RunReader, run_id: str, path: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="scalebook-") as folder:
        return Path(reader.client.download_artifacts(run_id, path, folder)).read_bytes()


def found_in(log: Path, text: str) -> tuple[list[tuple[int, str]], int]:
    """The lines of a log that contain `text`, ignoring case, with their numbers; and the number of all lines.

    Of a log longer than LONGEST_LOG bytes only the end is searched and counted.
    """
    lines = safe_reading.read_end(log, LONGEST_LOG).decode("utf-8", "replace").splitlines()
    wanted = text.casefold()
    return [(i, line) for i, line in enumerate(lines, 1) if wanted in line.casefold()], len(lines)
