"""A Lightning logger for one existing MLflow run: buffered, in the background, with four axes."""

import math
import threading
import time
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only
from typing_extensions import override

from scalebook.training.base import ConfigError, TimedOut
from scalebook.training.tracking import names
from scalebook.training.tracking.names import BYTES, SAMPLES, SECONDS, UPDATES
from scalebook.training.tracking.run_start import client_after_fork, flat, log_params, mark_running

if TYPE_CHECKING:
    from lightning.pytorch import Trainer
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
                raise TimedOut(
                    f"MLflow has accepted no metrics for {DEADLINE_S:g} s ({self._problem})"
                ) from self._problem
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
            raise TimedOut(f"MLflow did not accept the last {remaining} points ({self._problem})") from self._problem

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


EPOCH: Final = "epoch"
"""Lightning adds this metric, counted from 0, to what a module logs; it is not recorded. A run's page counts epochs
from 1."""


def names_class(value: Any) -> bool:
    """Whether the value contains a `class_path` at any depth."""
    if isinstance(value, Mapping):
        return "class_path" in value or any(map(names_class, value.values()))
    return isinstance(value, list | tuple) and any(map(names_class, value))


class Axes(NamedTuple):
    """A point's position: updates, samples and bytes over all workers, seconds since the first training batch."""

    updates: int
    samples: int
    seconds: float
    bytes: float = math.nan
    """Bytes pushed and pulled so far; NaN if they are not counted."""

    def points(self) -> dict[str, float]:
        """The axes as metrics; without bytes if they are not known or 0."""
        by_name = {UPDATES: float(self.updates), SAMPLES: float(self.samples), SECONDS: self.seconds}
        return {**by_name, BYTES: self.bytes} if self.bytes > 0 else by_name  # NaN is not more than 0


class RunLogger(Logger):
    """Writes metrics of the run `run_id`; whoever created the run records its parameters, tags and end.

    Only worker 0 writes, from a thread that starts with its first point, after any fork. A point's step is the number
    of updates in `axes`. Each new step also gets its samples, seconds and bytes; an old step gets them again if samples
    or bytes have grown, at a later time. Values of the whole run, `best/...` and `final/...`, are at step 0.
    """

    def __init__(
        self,
        tracking_uri: str,
        run_id: str,
        folder: Path,
        artifacts: Sequence[Path] = (),
        tags: Mapping[str, str] | None = None,
        arguments: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """`artifacts` are files of `folder`, uploaded at the start to the same relative paths; `tags` are set then.
        `arguments`: those of the model and of the data in the config, which is already recorded."""
        super().__init__()
        self.arguments = arguments
        self._facts: dict[str, str] = {}  # logged as parameters, beyond the config
        self.tracking_uri, self.run_id, self.folder = tracking_uri, run_id, folder
        self.artifacts, self.tags = artifacts, tags or {}
        self.axes: Callable[[], Axes] | None = None
        """Set by the Measure callback; without it the step is Lightning's."""
        self.logged: Callable[[], Collection[str]] | None = None
        """Names of the metrics that modules have logged; set by the Measure callback."""
        self._writer: MetricWriter | None = None
        self._client: MlflowClient | None = None
        self._last = (-1, -1, 0.0)  # updates, samples and bytes at which the axes were written last
        self._stamp = 0  # of the last points, unix ms

    @property
    @override
    def name(self) -> str:
        return "mlflow"

    @property
    @override
    def version(self) -> str:
        return self.run_id

    @property
    @override
    def save_dir(self) -> str:
        return str(self.folder)

    @property
    @override
    def log_dir(self) -> str:
        return str(self.folder)

    @property
    @rank_zero_experiment
    def experiment(self) -> "MlflowClient":
        """This process's own client, for artifacts and tags."""
        if self._client is None:
            self._client = client_after_fork(self.tracking_uri)
        return self._client

    @rank_zero_only
    def start(self) -> None:
        """Connect in the background, so that the first point need not wait. Call it in the worker."""
        self._the_writer().start()

    @override
    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        axes = self.axes() if self.axes is not None else None
        step = axes.updates if axes is not None else step or 0
        points = {name: value for name, value in metrics.items() if name != EPOCH or not self._is_lightnings(metrics)}
        stamp = max(int(time.time() * 1000), self._stamp)
        if axes is not None and (position := (step, axes.samples, axes.bytes if axes.bytes > 0 else 0.0)) > self._last:
            points |= {name: value for name, value in axes.points().items() if name != UPDATES}
            if step == self._last[0] and stamp == self._stamp:
                stamp += 1  # a curve joins the points of a step by their time
            self._last = position
        self._stamp = stamp
        once = {name: points.pop(name) for name in [*points] if name.startswith(names.ONCE)}
        if once:
            self._the_writer().add(once, 0, stamp)
        self._the_writer().add(points, step, stamp)

    @rank_zero_only
    def log_system(self, metrics: Mapping[str, float], step: int, timestamp: int) -> None:
        """Log MLflow's `system/` metrics: the sample with the number `step`, taken at `timestamp` (unix ms)."""
        self._the_writer().add(dict(metrics), step, timestamp)

    def _is_lightnings(self, metrics: Mapping[str, float]) -> bool:
        """Whether the epoch among these metrics was added by Lightning, and not logged by a module."""
        logged = set(self.logged()) if self.logged is not None else set()
        return len(metrics) > 1 and EPOCH not in logged and metrics.keys() - {EPOCH} <= logged

    @override
    @rank_zero_only
    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, metrics: Mapping[str, float] | None = None, *args: Any, **kwargs: Any
    ) -> None:
        """Record what the config does not have. Its own values, which Lightning passes to every logger, were recorded
        when the run was created. `metrics` are logged as such. ConfigError for a value that differs from an earlier
        one, which MLflow does not change."""
        values = vars(params) if isinstance(params, Namespace) else params
        news = flat({name: value for name, value in values.items() if not self._in_config(name, value)})
        for name, value in news.items():
            if self._facts.get(name, value) != value:
                raise ConfigError(
                    name, f"was logged as {self._facts[name]!r} and is now {value!r}, but MLflow keeps the first value",
                    "Log what changes as a metric, with self.log.",
                )  # fmt: skip
            if not names.recordable(name):
                problem = f"is not a name that can be recorded: {names.RECORDABLE_WORDS}"
                raise ConfigError(name, problem, "Log it under another name.")
        if news := {name: value for name, value in news.items() if name not in self._facts}:
            log_params(self.experiment, self.run_id, news)
            self._facts |= news
        if metrics:
            self.log_metrics(metrics)

    def _in_config(self, name: str, value: Any) -> bool:
        """Whether it is an argument of the model or the data as the config has it; an object as the class and the
        arguments from which it was made."""
        return any(
            name in said and (names_class(said[name]) or flat({name: said[name]}) == flat({name: value}))
            for said in self.arguments
        )

    @rank_zero_only
    def log_artifact(self, path: Path) -> None:
        """Upload a file to the top of the run's artifacts."""
        self.experiment.log_artifact(self.run_id, str(path))

    @override
    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Write the remaining points. It does not set the run's status: one process does not know how the whole run
        ended."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _the_writer(self) -> MetricWriter:
        if self._writer is None:
            places = {path: str(path.parent.relative_to(self.folder)) for path in self.artifacts}
            self._writer = MetricWriter(self.tracking_uri, self.run_id, places, self.tags)
        return self._writer


def upload(trainer: "Trainer", path: Path) -> None:
    """Upload a file to the run's artifacts, if the run is recorded; by worker 0."""
    for logger in trainer.loggers:
        if isinstance(logger, RunLogger):
            logger.log_artifact(path)
