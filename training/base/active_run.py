"""The run that MLflow's own functions (`mlflow.log_metric`, `mlflow.pytorch.autolog`) log to in a process of ours.

Without one they would make a run of their own, in a second store in the current folder. MLflow resumes the run that
`MLFLOW_RUN_ID` names at the first such call, so a process that calls none of them does not even import MLflow.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ADDRESS: Final = "MLFLOW_TRACKING_URI"
RUN: Final = "MLFLOW_RUN_ID"
ELSEWHERE: Final = "another-machine-records-this-run:use-self.log-or-self.logger-instead"
"""An address that MLflow refuses, and shows in its error."""
NO_STORE: Final = {ADDRESS: ELSEWHERE, RUN: "0" * 32}
_INHERITED: Final[list[Any]] = []
"""Pools of the parent's connections, in a forked process. They are kept, since a connection that is dropped is closed,
and a connection to SQLite must be neither used nor closed in a fork."""


@contextmanager
def logging_to(tracking_uri: str, run_id: str, *, here: bool) -> Iterator[None]:
    """Let MLflow's functions log to this run. Whoever started the run sets its final state afterwards.

    `here`: whether this process records the run. If another machine does, the functions raise an error.
    """
    with _environment({ADDRESS: tracking_uri, RUN: run_id} if here else NO_STORE):
        try:
            yield
        finally:
            _end_runs("")


@contextmanager
def logging_nothing() -> Iterator[None]:
    """Let MLflow's functions log to a store that is removed afterwards: what runs is not recorded."""
    with tempfile.TemporaryDirectory(prefix="scalebook-unrecorded-") as folder:
        values = {ADDRESS: Path(folder, "runs").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true", RUN: None}
        with _environment(values):
            try:
                yield
            finally:
                _end_runs("")


def active_run() -> str:
    """The id of the run that is active in this process; "" without one."""
    mlflow = sys.modules.get("mlflow")
    run = mlflow.active_run() if mlflow is not None else None
    return "" if run is None else str(run.info.run_id)


@contextmanager
def active_in_fork(run_id: str) -> Iterator[None]:
    """In a forked process, which MLflow lets begin without an active run: continue `run_id`, that of its parent. Other
    runs that are active at the end are ended."""
    if run_id:
        os.environ[RUN] = run_id
    carried = os.environ.get(RUN, "")
    try:
        yield
    finally:
        _end_runs(carried)


def _own_connections() -> None:
    """In a forked process: let MLflow open connections of its own, instead of using those of the parent."""
    store = getattr(sys.modules.get("mlflow.store.tracking.sqlalchemy_store"), "SqlAlchemyStore", None)
    for engine in [] if store is None else store._engine_map.values():
        _INHERITED.append(engine.pool)
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_own_connections)


def _end_runs(carried: str) -> None:
    """End the runs that are active in this process, down to `carried`."""
    try:
        while (run_id := active_run()) not in ("", carried):
            sys.modules["mlflow"].end_run()
            assert active_run() != run_id, "MLflow did not end its newest active run"
    except Exception:  # noqa: BLE001 - a store that does not answer must not hide how the run ended
        traceback.print_exc()


@contextmanager
def _environment(values: dict[str, Any]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
