"""A run's record until it trains: the store, the experiment, a waiting (SCHEDULED) run with everything known so far,
and its start (RUNNING).

MLflow gives a run its id, so the run exists before its folder, and must not outlive the process that was creating both.
From before the first until after the second there is a file in `.scalebook/submitting/`, locked by the submitter: if
its lock is free, the submitter has died or failed in between. Its runs carry the file's name as a tag, by which they
are found in the store.

MLflow is imported inside the functions (1.8 s, once per process).
"""

import fcntl
import importlib.metadata
import json
import logging
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any, Final, cast

from scalebook.training.base import (
    ConfigError,
    Workspace,
    active_run,  # noqa: F401  # a process forked from here has its own connections
    safe_path,
    sqlite_address,
)
from scalebook.training.base.files import locks
from scalebook.training.tracking import names, notes
from scalebook.training.tracking.moved_workspace import adopt_artifacts
from scalebook.training.tracking.schema import require_known
from scalebook.training.tracking.spool import SPOOL, Spool

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

LOCK_DEADLINE_S = 120.0
LONGEST_PARAM = 6000
"""The longest parameter value that MLflow stores, characters."""
PARAMS_A_CALL = 100
PACKAGES = ("scalebook", "torch", "lightning", "mlflow", "optuna", "numpy")
GIT_DEADLINE_S: Final = 3.0
"""Time limit for each of the two git commands, s; they take a few ms on an idle machine."""
GIT_LASTING_S: Final = 5.0
"""How long git's answer is cached, s: a search creates several runs a second."""
GIT_SAFELY: Final = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks")
NO_SETTINGS: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
GIT_CONFIG: Final = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = {format}\n"
SUBMISSIONS: Final = "submitting"
NAME: Final = re.compile(r"[0-9a-f]{32}")
PAGE: Final = 1000
BEGIN: Final = (
    "UPDATE runs SET start_time = CASE status WHEN 'SCHEDULED' THEN :at ELSE start_time END, status = 'RUNNING' "
    "WHERE run_uuid = :run AND lifecycle_stage = 'active'"
)


def open_store(workspace: Workspace) -> "MlflowClient":
    """A client of the workspace's store; one per process and address.

    The embedded store is created at first use, in WAL mode (readers and the writer do not wait for each other), with
    its tables (2.5 s); other processes wait meanwhile. TimeoutError after 120 s. ConfigError for a database of another
    MLflow version.
    """
    return _client(workspace.tracking_uri(), workspace)


@lru_cache(maxsize=64)
def _client(uri: str, workspace: Workspace) -> "MlflowClient":
    workspace.create()
    with _locked(workspace):
        require_known(uri)
        with safe_path.importing():
            from mlflow import MlflowClient

        for chatty in ("mlflow.store.db", "mlflow.store.db.utils", "alembic"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
        if is_embedded(workspace) and not workspace.database.exists():
            _make(workspace)
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)  # the store is opened, and migrated, by the first question
        adopt_artifacts(uri)
    return client


def _make(workspace: Workspace) -> None:
    """The database with its tables, and MLflow's Default experiment, whose files would else go to `./mlruns`."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    with closing(sqlite3.connect(workspace.database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    make: Any = SqlAlchemyStore  # has no types
    make(workspace.tracking_uri(), workspace.artifacts.resolve().as_uri()).engine.dispose()


def is_embedded(workspace: Workspace) -> bool:
    """Whether the store is the workspace's own SQLite file."""
    return workspace.tracking_uri() == sqlite_address(workspace.database)


def experiment_id(
    client: "MlflowClient", workspace: Workspace, name: str, notebook: str | None = None, search: str = ""
) -> str:
    """The id of the MLflow experiment `name`, which is restored if it was deleted, and created if it is missing.
    Without a description it gets one, for the `notebook`, or the `search` whose trials it has, and an order of its
    charts."""
    if (experiment := client.get_experiment_by_name(name)) is None:
        with _locked(workspace):
            if (experiment := client.get_experiment_by_name(name)) is None:
                location = workspace.artifacts.resolve().as_uri() if is_embedded(workspace) else None
                created = str(client.create_experiment(name, artifact_location=location))
                _describe(client, created, notebook, search)
                return created
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    if names.TAG_NOTE not in experiment.tags:  # of an earlier version; one that a person has emptied has an empty one
        _describe(client, experiment.experiment_id, notebook, search)
    return str(experiment.experiment_id)


def _describe(client: "MlflowClient", experiment: str, notebook: str | None, search: str) -> None:
    client.set_experiment_tag(experiment, notes.VIEW_TAG, notes.model_first())
    client.set_experiment_tag(experiment, names.TAG_NOTE, notes.of_experiment(experiment, notebook, search))


def create_run(
    client: "MlflowClient",
    experiment: str,
    name: str,
    tags: Mapping[str, str],
    content: Mapping[str, Any],
    trials: str = "",
) -> str:
    """Create a waiting run: status SCHEDULED, `tags`, a description with links back to Scalebook's pages, and the
    flattened `content`, a config or a search's body, as parameters. Returns its id. `trials`: id of the experiment of
    its trials, for a search's own run."""
    from mlflow.entities import Param, RunTag

    source = {names.TAG_SOURCE: tags.get(names.TAG_NOTEBOOK, "scalebook"), names.TAG_SOURCE_TYPE: "LOCAL"}
    run_id: str = client.create_run(experiment, tags={**source, **tags}, run_name=name).info.run_id
    client.update_run(run_id, status="SCHEDULED")
    params = [Param(key, value[:LONGEST_PARAM]) for key, value in flat(content).items()]
    note = [RunTag(names.TAG_NOTE, notes.of_run(run_id, tags.get(names.TAG_NOTEBOOK), trials))]
    for first in range(0, max(1, len(params)), PARAMS_A_CALL):
        client.log_batch(run_id, params=params[first : first + PARAMS_A_CALL], tags=note if not first else [])
    return run_id


LOGGED: Final = "logged."
"""Begins the name of a parameter that a model has logged, where the config has another value under that name."""


def log_params(client: "MlflowClient | Spool", run_id: str, values: Mapping[str, str]) -> None:
    """Add parameters that a model has logged to those of the config, whose values stay."""
    from mlflow.entities import Param

    if isinstance(client, Spool):
        client.log_params(run_id, values)
        return
    recorded = client.get_run(run_id).data.params
    news = {}
    for name, value in values.items():
        short = value[:LONGEST_PARAM]
        if recorded.get(name) != short:
            news[f"{LOGGED}{name}" if name in recorded else name] = short
    for first in range(0, len(news), PARAMS_A_CALL):
        params = [Param(*pair) for pair in [*news.items()][first : first + PARAMS_A_CALL]]
        client.log_batch(run_id, params=params, synchronous=True)


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested mappings as dotted keys; lists as JSON; `model.init_args.width` becomes `model.width`."""
    by_key: dict[str, str] = {}
    for key, value in nested.items():
        name = prefix.rstrip(".") if key == "init_args" and prefix else f"{prefix}{key}"
        if isinstance(value, Mapping):
            by_key |= flat(value, f"{name}.")
        else:
            by_key[name] = value if isinstance(value, str) else json.dumps(value, default=str)
    return by_key


def surroundings(root: Path) -> dict[str, str]:
    """Tags that say where a run comes from: host, versions of packages, and the git commit of the folder `root`, with
    whether files differ from it."""
    tags = {names.TAG_HOST: platform.node(), names.TAG_VERSIONS: json.dumps(_versions())}
    if commit := commit_of(root):
        tags[names.TAG_COMMIT] = commit.id
        if commit.changed is not None:
            tags[names.TAG_UNCOMMITTED] = "yes" if commit.changed else "no"
    return tags


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


@contextmanager
def _locked(workspace: Workspace) -> Iterator[None]:
    """Alone among all processes that prepare this workspace's store."""
    path = workspace.hidden / "mlflow.lock"
    handle = locks.opened(path)
    try:
        if not locks.acquired(handle, LOCK_DEADLINE_S):
            raise TimeoutError(f"{path} is held by another process")
        yield
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Commit:
    """A git commit. `changed`: whether a tracked file in or below the folder differs; None if not known."""

    id: str
    changed: bool | None


_known: dict[Path, tuple[float, Commit | None]] = {}


def commit_of(folder: Path) -> Commit | None:
    """The commit of a folder, and whether its files differ from it, found without running code from the repository.

    None if the folder is in no repository of this user, or git is missing or too slow. The repository may be a
    stranger's: its `.git/config` can name programs (a file system monitor, filters, a transport) that git runs when it
    reads files. `rev-parse`, which gives the commit, reads no files; the comparison uses a temporary git directory,
    with the repository's objects and index but no settings.
    """
    checked_at, commit = _known.get(folder, (0.0, None))
    if not checked_at or time.monotonic() - checked_at > GIT_LASTING_S:
        commit = _asked_of_git(folder)
        _known[folder] = time.monotonic(), commit
    return commit


def _asked_of_git(folder: Path) -> Commit | None:
    words = ("rev-parse", "HEAD", "--show-toplevel", "--git-path", "objects", "--git-path", "index")
    lines = (_git(folder, *words) or "").splitlines()
    if len(lines) != 4:  # also in a bare repository, and of paths with a line break
        return None
    commit, top, objects, index = lines
    if not all(sign in "0123456789abcdef" for sign in commit) or len(commit) not in (40, 64):
        return None
    with tempfile.TemporaryDirectory(prefix="scalebook-git-") as temporary:
        place = Path(temporary)
        (place / "HEAD").write_text(f"{commit}\n", encoding="ascii")
        settings = GIT_CONFIG.format(format="sha1" if len(commit) == 40 else "sha256")
        (place / "config").write_text(settings, encoding="ascii")
        for needed in ("refs", "objects"):
            (place / needed).mkdir()
        env = {"GIT_OBJECT_DIRECTORY": str(folder / objects), "GIT_INDEX_FILE": str(folder / index), **NO_SETTINGS}
        words = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all", "--no-renames", "--", ".")
        changes = _git(folder, f"--git-dir={place}", f"--work-tree={top}", *words, **env)
    return Commit(commit, None if changes is None else bool(changes.strip()))


def _git(folder: Path, *words: str, **more: str) -> str | None:
    """What git prints; None where it fails or takes too long."""
    if (program := which("git")) is None:
        return None
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        process = subprocess.run(
            [program, *GIT_SAFELY, "-C", str(folder), *words], env={**environment, **more}, capture_output=True,
            text=True, timeout=GIT_DEADLINE_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (subprocess.TimeoutExpired, OSError, ValueError):
        return None
    return process.stdout if process.returncode == 0 else None


def submissions_folder(workspace: Workspace) -> Path:
    return workspace.hidden / SUBMISSIONS


@contextmanager
def submission(workspace: Workspace) -> Iterator[dict[str, str]]:
    """Yield the tags with which runs, and then their folders, are to be created inside.

    After an exception, runs without a folder are removed at once; if that fails too (a full disk), the supervisor does
    it later.
    """
    submissions_folder(workspace).mkdir(parents=True, exist_ok=True)
    name = uuid.uuid4().hex
    mark, beside = submissions_folder(workspace) / name, submissions_folder(workspace) / f".{name}"
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
    marks = (path for path in submissions_folder(workspace).glob("[!.]*") if NAME.fullmatch(path.name))
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
            client.set_tag(run_id, names.TAG_CAUSE, "the command that started the test has died")
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
        print(
            f"scalebook: warning: a run that has no job could not be removed from MLflow yet: {error}", file=sys.stderr
        )


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


def mark_running(client: "MlflowClient | Spool", run_id: str, started: float) -> None:
    """Mark a run as RUNNING. If it was SCHEDULED, its start time becomes `started` (unix s), so that the duration in
    MLflow does not include the wait; a resumed search keeps its first start.

    MLflow's API cannot change a run's start time, so this changes its database; behind another server the wait stays
    part of the duration.
    """
    if isinstance(client, Spool):
        client.begun(run_id, started)
        return
    engine: Any = getattr(client._tracking_client.store, "engine", None)
    if engine is None:
        client.update_run(run_id, status="RUNNING")
        return
    from sqlalchemy import text

    parameters = {"run": run_id, "at": int(started * 1000)}
    with engine.begin() as connection:
        result = connection.execute(text(BEGIN), parameters)
    if not result.rowcount:
        client.update_run(run_id, status="RUNNING")  # which says why it cannot be


def client_after_fork(tracking_uri: str) -> "MlflowClient":
    """A client that shares no database connection with the parent process. ConfigError for a database of another MLflow
    version."""
    if folder := os.environ.get(SPOOL):  # of a job whose store is on another machine
        spool: Any = Spool(Path(folder))
        return cast("MlflowClient", spool)
    require_known(tracking_uri)
    adopt_artifacts(tracking_uri)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri)


def terminated(client: "MlflowClient | Spool", run_id: str, status: str, ended: int) -> None:
    """Record the end of a run, at `ended` (unix ms), and let its experiment's list of runs have columns for what it has
    logged."""
    client.set_terminated(run_id, status, ended)
    if isinstance(client, Spool):
        return  # whoever replays it calls this too
    run = client.get_run(run_id)
    view = client.get_experiment(run.info.experiment_id).tags.get(notes.VIEW_TAG, "")
    if (wider := notes.with_metrics(view, run.data.metrics)) != view:
        client.set_experiment_tag(run.info.experiment_id, notes.VIEW_TAG, wider)


def make_store(tracking_uri: str) -> None:
    """Let mlflow create and cache its store, for processes forked from this one, if it is an existing file: mlflow then
    inspects every table's columns (0.05 s). No connection stays open."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        address = make_url(tracking_uri)
    except ArgumentError:  # no database: a server, or a folder
        return
    if address.get_backend_name() == "sqlite" and address.database and Path(address.database).is_file():
        with suppress(ConfigError):  # each job says it
            client_after_fork(tracking_uri)._tracking_client.store.engine.dispose()
