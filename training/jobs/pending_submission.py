"""Submissions under way: an MLflow run without a job folder must not outlive the process that was creating both.

MLflow gives a run its id, so the run exists before its folder. From before the first until after the second there is a
file in `.scalebook/submitting/`, locked by the submitter: if its lock is free, the submitter has died or failed in
between. Its runs carry the file's name as a tag, by which they are found in the store.
"""

import fcntl
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scalebook.training.base.files import locks
from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import open_store

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

FOLDER: Final = "submitting"
NAME: Final = re.compile(r"[0-9a-f]{32}")
PAGE: Final = 1000


def folder(workspace: Workspace) -> Path:
    return workspace.hidden / FOLDER


@contextmanager
def submission(workspace: Workspace) -> Iterator[dict[str, str]]:
    """Yield the tags with which runs, and then their folders, are to be created inside.

    After an exception, runs without a folder are removed at once; if that fails too (a full disk), the supervisor does
    it later.
    """
    folder(workspace).mkdir(parents=True, exist_ok=True)
    name = uuid.uuid4().hex
    mark, beside = folder(workspace) / name, folder(workspace) / f".{name}"
    handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, workspace.tracking_uri().encode())
        beside.rename(mark)  # seen by others only when it is locked
        try:
            yield {names.TAG_SUBMISSION: name}
        except BaseException:
            _try_to_withdraw(workspace, mark)
            raise
        mark.unlink()
    finally:
        os.close(handle)
        beside.unlink(missing_ok=True)


def abandoned(workspace: Workspace) -> list[Path]:
    """The files of submitters that have died or failed, if they recorded to the store of this process."""
    uri = workspace.tracking_uri()
    marks = (path for path in folder(workspace).glob("[!.]*") if NAME.fullmatch(path.name))
    return [mark for mark in marks if _is_free(mark) and _told(mark) == uri]


def withdraw(workspace: Workspace, mark: Path) -> int:
    """Remove the runs of an abandoned submission that have no folder; returns how many. Raises MLflow's errors.

    A config test never has a folder: its run is marked as failed.
    """
    assert NAME.fullmatch(mark.name), mark
    client, count = open_store(workspace), 0
    for run in _open_runs(client, mark.name):
        run_id = run.info.run_id
        if not NAME.fullmatch(run_id) or (workspace.jobs / run_id).exists() or (workspace.studies / run_id).exists():
            continue
        if names.TAG_TEST in run.data.tags:
            client.set_tag(run_id, names.TAG_STATUS, "failed")
            client.set_tag(run_id, names.TAG_CAUSE, "the command that made the test has died")
            client.set_terminated(run_id, "FAILED", int(time.time() * 1000))
        else:
            client.delete_run(run_id)
        for parent in (workspace.jobs, workspace.studies):
            shutil.rmtree(parent / f".{run_id}", ignore_errors=True)
        count += 1
    mark.unlink(missing_ok=True)
    return count


def _open_runs(client: "MlflowClient", name: str) -> "list[Run]":
    """The runs that carry the tag and have not ended."""
    experiments = [experiment.experiment_id for experiment in client.search_experiments(max_results=PAGE)]
    runs = client.search_runs(experiments, f"tags.`{names.TAG_SUBMISSION}` = '{name}'", max_results=PAGE)
    return [run for run in runs if run.info.status in ("SCHEDULED", "RUNNING")]


def _try_to_withdraw(workspace: Workspace, mark: Path) -> None:
    try:
        withdraw(workspace, mark)
    except Exception as error:  # noqa: BLE001 - what failed before is the news; the mark stays for the supervisor
        print(f"scalebook: warning: a run without a job stays in MLflow for now: {error}", file=sys.stderr)


def _is_free(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # gone meanwhile
        return False
    try:
        return not locks.is_held(handle)
    finally:
        os.close(handle)


def _told(path: Path) -> str:
    try:
        return path.read_bytes()[:4096].decode("utf-8", "replace")
    except OSError:
        return ""
