"""Writes points to MLflow: buffers them while training goes on; a thread writes them in batches."""

import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.failures import TimedOut
from scalebook.training.tracking import names
from scalebook.training.tracking.schema import require_known
from scalebook.training.tracking.spool import SPOOL, Spool, mark_running

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

BATCH: Final = 1000
"""The most points in one call; MLflow refuses more."""

CAPACITY: Final = 100_000
"""The most points in the buffer, about 30 MB. If a slow store fills it, training waits."""

FIRST_PAUSE_S: Final = 0.3
LONGEST_PAUSE_S: Final = 2.0
"""Interval between batches, s: short at the start, when people watch; a batch costs 8 ms of the interpreter's time."""

RETRY_S: Final = 1.0
DEADLINE_S: Final = 60.0
"""How long the store may take for the rest at the end, and to make room in a full buffer, s."""


_OWNERS: Final[dict[int, int]] = {}
"""Which process opened the connections of each of mlflow's cached engines (by id), as far as this module knows."""


class MetricWriter:
    """Writes the points of one run. Owns one thread, from the first `add` until `close`.

    Create it in the process that adds points: neither threads nor database connections survive a fork. Call `add` and
    `close` from one thread. It retries a failing store until `close` runs out of time, so a short outage loses nothing.
    """

    def __init__(
        self,
        tracking_uri: str,
        run_id: str,
        artifacts: Mapping[Path, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """`artifacts`: files, each with its folder below the run's artifacts, `.` for the top."""
        self.tracking_uri, self.run_id = tracking_uri, run_id
        self.artifacts, self.tags = artifacts or {}, tags or {}
        self._points: deque[Metric] = deque()
        self._changed = threading.Condition()
        self._taken: set[str] = set()
        self._closing = False
        self._problem: Exception | None = None
        self._thread: threading.Thread | None = None
        self._begun = time.monotonic()
        self._started = time.time()
        self._until = 0.0  # when to give up, once closing

    def start(self) -> None:
        """Connect, mark the run as RUNNING, set `tags` and upload `artifacts`, in the background (up to 0.5 s)."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mlflow-writer", daemon=True)
            self._thread.start()

    def add(self, metrics: dict[str, float], step: int, timestamp: int | None = None) -> None:
        """Add points, with the present time or `timestamp` (unix ms); returns at once unless the buffer is full. Raises
        TimedOut if it stays full, and ConfigError for a name that MLflow does not accept: it would refuse the whole
        batch, each time."""
        from mlflow.entities import Metric

        for metric in metrics.keys() - self._taken:
            if not names.recordable(metric):
                problem = f"is not a name that can be recorded: {names.RECORDABLE_WORDS}"
                raise ConfigError(metric, problem, "Log it under another name.")
            self._taken.add(metric)

        now = int(time.time() * 1000) if timestamp is None else timestamp
        self.start()
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._points) < CAPACITY, DEADLINE_S):
                raise TimedOut(f"MLflow took no metrics for {DEADLINE_S:g} s ({self._problem})") from self._problem
            self._points.extend(Metric(key, value, now, step) for key, value in metrics.items())
            self._changed.notify_all()

    def close(self) -> None:
        """Write the remaining points and end the thread. Raises TimedOut if the store does not take them. May be called
        twice."""
        if self._thread is None:
            return
        with self._changed:
            self._closing = True
            self._until = time.monotonic() + DEADLINE_S - 2 * RETRY_S
            self._changed.notify_all()
        self._thread.join(DEADLINE_S)
        remaining = len(self._points)
        if remaining or self._thread.is_alive():
            raise TimedOut(f"MLflow did not take the last {remaining} points ({self._problem})") from self._problem

    def _work(self) -> None:
        client = self._connected()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._points or self._closing)
                batch = list(islice(self._points, BATCH))
            if not batch:
                return
            written = client is not None and self._write(client, batch)
            if not written:
                with self._changed:
                    if self._closing and time.monotonic() > self._until:
                        return
                time.sleep(RETRY_S)
                client = client or self._connected()
                continue
            with self._changed:
                for _ in batch:
                    self._points.popleft()
                self._changed.notify_all()
                if not self._closing and len(self._points) < BATCH:
                    self._changed.wait_for(lambda: self._closing, self._pause())

    def _write(self, client: "MlflowClient", batch: "list[Metric]") -> bool:
        try:
            client.log_batch(self.run_id, metrics=batch, synchronous=True)
        except Exception as error:  # noqa: BLE001 - whatever the store says, the points are kept and tried again
            self._problem = error
            return False
        return True

    def _connected(self) -> "MlflowClient | None":
        try:
            client = client_after_fork(self.tracking_uri)
            mark_running(client, self.run_id, self._started)
            for key, value in self.tags.items():
                client.set_tag(self.run_id, key, value)
            for path, place in self.artifacts.items():
                client.log_artifact(self.run_id, str(path), None if place == "." else place)
        except Exception as error:  # noqa: BLE001 - as above
            self._problem = error
            return None
        return client

    def _pause(self) -> float:
        return min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, (time.monotonic() - self._begun) / 5))


def client_after_fork(tracking_uri: str) -> "MlflowClient":
    """A client that shares no database connection with the parent process. ConfigError for a database of another MLflow
    version."""
    if folder := os.environ.get(SPOOL):  # of a job whose store is on another machine
        spool: Any = Spool(Path(folder))
        return cast("MlflowClient", spool)
    require_known(tracking_uri)
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri)
    engine = _engine(client)
    if engine is not None and _OWNERS.get(id(engine)) != os.getpid():
        engine.dispose(close=False)
        _OWNERS[id(engine)] = os.getpid()
    return client


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
            _engine(client_after_fork(tracking_uri)).dispose()


def _engine(client: "MlflowClient") -> Any:
    """Of the client's database; None where it has none."""
    return getattr(client._tracking_client.store, "engine", None)
