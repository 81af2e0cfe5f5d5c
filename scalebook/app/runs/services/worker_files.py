"""Where figures of single workers are found: in a job's folder, or in the store (tracking/worker_figures.py)."""

from dataclasses import replace
from pathlib import Path

from scalebook.app.runs.services import artifacts
from scalebook.app.runs.services.runs import RunView
from scalebook.training.files.reading import whole
from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunReader
from scalebook.training.tracking.worker_figures import LARGEST, WorkerFigures, parsed


def state_of(folder: Path) -> tuple[int, int] | None:
    """Of the file in a job's folder: another one when it has grown; None where there is none."""
    try:
        facts = (folder / names.WORKERS_JSONL).lstat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size


def in_folder(folder: Path) -> WorkerFigures:
    """Nothing where there is no such file, or a larger one than ours are."""
    try:
        return parsed(whole(folder / names.WORKERS_JSONL, LARGEST))
    except OSError:
        return WorkerFigures()


def in_store(reader: RunReader, run_id: str) -> WorkerFigures:
    return parsed(artifacts.read(reader, run_id, names.WORKERS_JSONL) or b"")


def with_workers(view: RunView, figures: WorkerFigures) -> RunView:
    """With the figures of its workers among its metrics, as runs of earlier versions have them in MLflow."""
    if not figures.last:
        return view
    return replace(view, record=replace(view.record, metrics={**view.record.metrics, **figures.last}))
