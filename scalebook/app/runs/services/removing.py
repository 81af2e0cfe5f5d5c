"""Deleting runs: their folders here, and their entries in MLflow, which keeps them among its deleted ones."""

from collections.abc import Iterable

from scalebook.training.errors import ConfigError
from scalebook.training.jobs import queue
from scalebook.training.search import launch
from scalebook.training.search.folder import SearchFolder
from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunReader, tag_is
from scalebook.training.workspace import Workspace

MOST_TRIALS = 50_000


def delete_runs(workspace: Workspace, reader: RunReader, run_ids: Iterable[str]) -> tuple[int, list[str]]:
    """How many were deleted, and why the others were not: a run that goes on is never deleted."""
    done, refused = 0, []
    for run_id in run_ids:
        job = queue.folder_of(workspace, run_id)
        try:
            if job is not None:
                queue.delete(workspace, job)
            else:
                _entry(reader, run_id)
            done += 1
        except ConfigError as error:
            refused.append(str(error))
    return done, refused


def _entry(reader: RunReader, run_id: str) -> None:
    """Of a run that has no folder here: it may live somewhere else."""
    try:
        record = reader.run(run_id)
    except KeyError:
        return  # by somebody else, meanwhile
    if record.outcome in ("waiting", "running"):
        raise ConfigError(record.name or run_id[:12], f"is {record.outcome}", "Stop it on its machine.")
    reader.client.delete_run(run_id)


def delete_search(workspace: Workspace, reader: RunReader, search: SearchFolder, *, trials: bool) -> list[str]:
    """The search with its study and, where asked for, the runs of its `trials`; why some of these were not deleted.

    ConfigError while it goes on.
    """
    launch.delete(search)
    refused: list[str] = []
    if trials:
        mine = reader.runs(where=tag_is(names.TAG_PARENT, search.id), limit=MOST_TRIALS)
        _, refused = delete_runs(workspace, reader, [run.id for run in mine])
    try:
        reader.run(search.id)
    except KeyError:
        return refused
    reader.client.delete_run(search.id)
    return refused
