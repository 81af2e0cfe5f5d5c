"""Reads runs back from MLflow, without torch: for the app, the command line and comparisons.

`RunReader(tracking_uri)` owns one MlflowClient. Reads are pages and histories, never whole stores: `runs` returns at
most `limit` runs. Safe to use from several threads. MLflow itself is imported on first use (1.8 s).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import override

from scalebook.training.base import safe_path
from scalebook.training.tracking import names
from scalebook.training.tracking.moved_workspace import adopt_artifacts
from scalebook.training.tracking.schema import require_known

if TYPE_CHECKING:
    from mlflow import MlflowClient

NEWEST_FIRST = ("attributes.start_time DESC",)
OLDEST_FIRST = ("attributes.start_time ASC",)
_OF_NOTEBOOK = "AND r.run_uuid IN (SELECT run_uuid FROM tags WHERE key = :notebook_tag AND value = :notebook)"
_NO_TRIALS = "AND r.run_uuid NOT IN (SELECT run_uuid FROM tags WHERE key = :trial_tag)"
_NEWEST = """FROM runs AS r JOIN experiments AS e ON r.experiment_id = e.experiment_id
WHERE r.lifecycle_stage = 'active' AND e.lifecycle_stage = 'active' {only}
ORDER BY r.start_time DESC, r.run_uuid LIMIT :limit"""
_OF_THEM = f"WHERE run_uuid IN (SELECT run_uuid FROM (SELECT r.run_uuid {_NEWEST}) AS newest)"
_NOT_OF_WORKERS = "key NOT LIKE 'worker\\_%' ESCAPE '\\'"
LIST_QUERIES = (
    f"SELECT r.run_uuid, r.name, r.experiment_id, r.status, r.start_time, r.end_time {_NEWEST}",
    f"SELECT run_uuid, key, value FROM tags {_OF_THEM}",
    f"SELECT run_uuid, key, value, is_nan, step FROM latest_metrics {_OF_THEM} AND {_NOT_OF_WORKERS}",
)
"""Runs, their tags and their last values, from MLflow's tables; a test compares the answer with MLflow's."""
PARAMETER_NAMES = """WITH RECURSIVE names (name) AS (
    SELECT MIN(key) FROM params
    UNION ALL SELECT (SELECT MIN(key) FROM params WHERE key > names.name) FROM names WHERE names.name IS NOT NULL
) SELECT name FROM names WHERE name IS NOT NULL"""
"""Each name once, by steps through the primary key, which begins with it: DISTINCT would read every value."""
EVERY_POINT = """SELECT key, step, timestamp, value, is_nan FROM metrics WHERE run_uuid = :run
ORDER BY timestamp, step, value"""
POINTS = EVERY_POINT.replace(":run", ":run AND key IN :keys")
"""In the order that MLflow itself returns them."""
JOINED = (names.SAMPLES, names.SECONDS, names.BYTES)
"""The axes that a curve has in addition to its updates."""
PARAMETER = "SELECT run_uuid, value FROM params WHERE key = :key"


@dataclass(frozen=True)
class RunRecord:
    """One MLflow run. `metrics` are last values; `started` and `ended` unix s, `ended` None while it runs."""

    id: str
    name: str
    experiment_id: str
    status: str
    """MLflow's own: SCHEDULED, RUNNING, FINISHED, FAILED, KILLED."""
    started: float
    ended: float | None
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def cell(self) -> str | None:
        return self.tags.get(names.TAG_CELL)

    @property
    def notebook(self) -> str | None:
        return self.tags.get(names.TAG_NOTEBOOK)

    @property
    def title(self) -> str:
        """The run's title for people: cell, trial of its search, and seed; without a cell, MLflow's name."""
        trial, seed = self.tags.get(names.TAG_TRIAL), self.tags.get(names.TAG_SEED)
        parts = [self.cell, f"trial {trial}" if trial else "", "" if seed is None else f"seed {seed}"]
        return " · ".join(part for part in parts if part) if self.cell else (self.name or self.id[:8])

    @property
    def outcome(self) -> str:
        """The run's state: waiting, running, finished, failed, stopped, or pruned by its search."""
        if self.ended and self.tags.get(names.TAG_TRIAL_STATE) == "pruned":
            return "pruned"
        status = self.tags.get(names.TAG_STATUS)
        words = {"SCHEDULED": "waiting", "RUNNING": "running", "FINISHED": "finished", "KILLED": "stopped"}
        return status or words.get(self.status, "failed")


@dataclass(frozen=True)
class MetricCurve:
    """One metric of one run: `values[i]` was logged at `updates[i]`, `samples[i]`, `seconds[i]`, `bytes[i]`.

    `bytes` is empty if bytes were not counted at each point, or none were transferred.
    """

    run_id: str
    metric: str
    updates: list[float]
    samples: list[float]
    seconds: list[float]
    values: list[float]
    bytes: list[float] = field(default_factory=list)

    def on(self, name: str) -> tuple[list[float], list[float]]:
        """x and y against an axis; empty if the axis was not recorded."""
        x = self.axis(name)
        return (x, self.values) if x else ([], [])

    def axis(self, name: str) -> list[float]:
        """The x-values `updates`, `samples`, `seconds` or `bytes`."""
        assert name in names.AXES, name
        values: list[float] = getattr(self, name)
        return values

    def first_at(self, axis: str, target: float, lower: bool) -> float | None:
        """Where on `axis` the curve first is at `target` or better (lower, or else higher); None if it never is."""
        for position, value in zip(*self.on(axis), strict=True):
            if value <= target if lower else value >= target:
                return position
        return None


class RunReader:
    """Queries over one MLflow store. ConfigError for a database of another MLflow version."""

    def __init__(self, tracking_uri: str) -> None:
        self.tracking_uri = tracking_uri

    @cached_property
    def client(self) -> "MlflowClient":
        require_known(self.tracking_uri)
        adopt_artifacts(self.tracking_uri)
        with safe_path.importing():
            from mlflow import MlflowClient
        return MlflowClient(self.tracking_uri)

    def run(self, run_id: str) -> RunRecord:
        """One run; KeyError if the store has none with that id."""
        from mlflow.exceptions import MlflowException

        try:
            return _record(self.client.get_run(run_id))
        except MlflowException as error:
            raise KeyError(run_id) from error

    def runs(
        self,
        *,
        notebook: str | None = None,
        cell: str | None = None,
        config_hash: str | None = None,
        where: str = "",
        limit: int = 100,
        order_by: Sequence[str] = NEWEST_FIRST,
    ) -> list[RunRecord]:
        """The newest `limit` runs; of one notebook, cell or config, if given. `where` is a further MLflow filter."""
        clauses = [where] if where else []
        if config_hash is not None:
            clauses.append(tag_is(names.TAG_CONFIG_HASH, config_hash))
        if notebook is not None:
            clauses.append(tag_is(names.TAG_NOTEBOOK, notebook))
        if cell is not None:
            clauses.append(tag_is(names.TAG_CELL, cell))
        experiments = [experiment.experiment_id for experiment in self.client.search_experiments(max_results=1000)]
        runs = self.client.search_runs(experiments, " and ".join(clauses), max_results=limit, order_by=list(order_by))
        records = [_record(run) for run in runs]
        return [run for run in records if notebook in (None, run.notebook) and cell in (None, run.cell)]

    def deleted(self, notebook: str, config_hash: str, limit: int = 100) -> list[RunRecord]:
        """The oldest deleted runs with this notebook and config, as long as MLflow keeps them."""
        from mlflow.entities import ViewType

        experiments = [experiment.experiment_id for experiment in self.client.search_experiments(max_results=1000)]
        clauses = f"{tag_is(names.TAG_CONFIG_HASH, config_hash)} and {tag_is(names.TAG_NOTEBOOK, notebook)}"
        runs = self.client.search_runs(experiments, clauses, ViewType.DELETED_ONLY, limit, list(OLDEST_FIRST))
        return [run for run in map(_record, runs) if run.notebook == notebook]

    def listed(self, limit: int, *, notebook: str | None = None, trials: bool = True) -> list[RunRecord]:
        """The newest `limit` runs for a list of them, without parameters and without the metrics of single workers: all
        runs, or those of one notebook, or all but the trials of searches.

        MLflow takes 1.5 ms per run; if the store is a database, three queries take a tenth of that.
        """
        engine = self._database()
        if engine is None:
            where = "" if trials else f"tags.`{names.TAG_TRIAL}` IS NULL"
            return [_light(run) for run in self.runs(notebook=notebook, where=where, limit=limit)]
        from sqlalchemy import text

        only = f"{_OF_NOTEBOOK if notebook is not None else ''} {'' if trials else _NO_TRIALS}"
        values: dict[str, object] = {"limit": limit}
        if notebook is not None:
            values |= {"notebook": notebook, "notebook_tag": names.TAG_NOTEBOOK}
        if not trials:
            values |= {"trial_tag": names.TAG_TRIAL}
        queries = [text(query.format(only=only)) for query in LIST_QUERIES]
        with engine.connect() as connection:
            rows, tags, metrics = (connection.execute(query, values).all() for query in queries)
        by_run: dict[str, tuple[dict[str, str], dict[str, float]]] = {row.run_uuid: ({}, {}) for row in rows}
        for run, key, value in tags:
            if run in by_run:  # else it was made between two of the queries
                by_run[run][0][key] = value
        for run, key, value, is_nan, step in metrics:
            if run in by_run:
                by_run[run][1][key] = math.nan if is_nan else value
                if key == names.SAMPLES:
                    by_run[run][1].setdefault(names.UPDATES, float(step))
        records = [
            RunRecord(
                row.run_uuid, row.name or "", str(row.experiment_id), row.status, (row.start_time or 0) / 1000,
                row.end_time / 1000 if row.end_time else None, by_run[row.run_uuid][0], {},
                names.completed(by_run[row.run_uuid][1]),
            )
            for row in rows
        ]  # fmt: skip
        return [run for run in records if notebook in (None, run.notebook)]

    def parameter_names(self) -> list[str]:
        """The names of all parameters in the store, sorted; empty if the store is not a database."""
        engine = self._database()
        if engine is None:
            return []
        from sqlalchemy import text

        with engine.connect() as connection:
            return sorted(name for (name,) in connection.execute(text(PARAMETER_NAMES)))

    def parameter(self, name: str) -> dict[str, str]:
        """Run id -> value of one parameter, for all runs; empty if the store is not a database."""
        engine = self._database()
        if engine is None:
            return {}
        from sqlalchemy import text

        with engine.connect() as connection:
            rows = connection.execute(text(PARAMETER), {"key": name}).all()
        return {str(row.run_uuid): str(row.value) for row in rows}

    def _database(self) -> Any:
        """SQLAlchemy's engine of the store; None of another one."""
        return getattr(self.client._tracking_client.store, "engine", None)

    def curve(self, run_id: str, metric: str) -> MetricCurve:
        """The history of `metric`, with the samples and seconds of its points; points without them are left out."""
        return self.curves(run_id, [metric])[0]

    def curves(self, run_id: str, metrics: Sequence[str]) -> list[MetricCurve]:
        """The histories of `metrics`, in their order; the axes are read once for all."""
        sources = [source for metric in metrics for source in names.FOLLOWS.get(metric, ())]
        points = self._points(run_id, [*JOINED, *metrics, *sources])
        axes = [_AxisPoints(points[name]) for name in JOINED]
        histories = {metric: _history(points[metric]) for metric in metrics}
        for metric, followed in names.FOLLOWS.items():
            if metric in histories and not histories[metric]:
                by_source = {source: _history(points[source]) for source in followed}
                histories[metric] = _following(metric, by_source, axes[0], axes[2])
        return [_curve(run_id, metric, values, *axes) for metric, values in histories.items()]

    def every_curve(self, run_id: str) -> list[MetricCurve]:
        """The curves of all metrics, by name; one query if the store is a database, since MLflow itself takes one per
        metric."""
        engine: Any = getattr(self.client._tracking_client.store, "engine", None)
        if engine is None:
            return [curve for curve in self.curves(run_id, sorted(self.run(run_id).metrics)) if curve.values]
        from sqlalchemy import text

        points: dict[str, list[_Point]] = {}
        with engine.connect() as connection:
            for key, step, timestamp, value, is_nan in connection.execute(text(EVERY_POINT), {"run": run_id}):
                points.setdefault(key, []).append(_Point(step, timestamp, math.nan if is_nan else value))
        axes = [_AxisPoints(points.pop(name, [])) for name in JOINED]
        curves = [_curve(run_id, key, _history(values), *axes) for key, values in sorted(points.items())]
        return [curve for curve in curves if curve.values and curve.metric not in names.AXES]

    def _points(self, run_id: str, metrics: Sequence[str]) -> "dict[str, list[_Point]]":
        """All that was recorded of `metrics`, in the order of recording; of a database by one query: MLflow takes one
        for each metric, and makes an object of each point."""
        if (engine := self._database()) is None:
            client = self.client
            return {
                name: [_Point(one.step, one.timestamp, one.value) for one in client.get_metric_history(run_id, name)]
                for name in metrics
            }
        from sqlalchemy import bindparam, text

        points: dict[str, list[_Point]] = {name: [] for name in metrics}
        query = text(POINTS).bindparams(bindparam("keys", expanding=True))
        with engine.connect() as connection:
            for key, step, timestamp, value, is_nan in connection.execute(query, {"run": run_id, "keys": list(points)}):
                points[key].append(_Point(step, timestamp, math.nan if is_nan else value))
        return points


class NoRuns(RunReader):
    """The reader of a workspace without a store; reading does not create one."""

    @override
    def runs(self, **_: Any) -> list[RunRecord]:
        return []

    @override
    def deleted(self, notebook: str, config_hash: str, limit: int = 100) -> list[RunRecord]:
        return []


class _Point(NamedTuple):
    step: int
    timestamp: int
    """Unix time, ms."""
    value: float


_History = dict[int, _Point]
"""The last point of each step."""


def _history(points: Sequence[_Point]) -> _History:
    return {point.step: point for point in points}


class _AxisPoints:
    """Samples, seconds or bytes. A step has several points where training goes on between two updates, as local steps
    do: a metric was logged at the last of them that is not later than it."""

    def __init__(self, points: Sequence[_Point]) -> None:
        self._by_step: dict[int, list[_Point]] = {}
        for point in points:
            self._by_step.setdefault(point.step, []).append(point)
        self.first = min(self._by_step, default=0)

    def __bool__(self) -> bool:
        return bool(self._by_step)

    def __contains__(self, step: int) -> bool:
        return step in self._by_step

    def value_at(self, point: _Point) -> float:
        """0 if the step has none."""
        there = self._by_step.get(point.step, [])
        earlier = [one.value for one in there if one.timestamp <= point.timestamp]
        return earlier[-1] if earlier else there[0].value if there else 0.0


def _curve(
    run_id: str, metric: str, history: _History, samples: _AxisPoints, seconds: _AxisPoints, moved: _AxisPoints
) -> MetricCurve:
    points = [history[step] for step in sorted(history) if step in samples and step in seconds]
    # Bytes of 0 are not recorded.
    counted = bool(moved) and all(point.step in moved or point.step < moved.first for point in points)
    return MetricCurve(
        run_id,
        metric,
        updates=[float(point.step) for point in points],
        samples=[samples.value_at(point) for point in points],
        seconds=[seconds.value_at(point) for point in points],
        values=[point.value for point in points],
        bytes=[moved.value_at(point) for point in points] if counted else [],
    )


def _following(metric: str, sources: Mapping[str, _History], samples: _AxisPoints, moved: _AxisPoints) -> _History:
    """The history of a metric that is not recorded, from those of its sources, of which the first is at each point, and
    the axes."""
    history = {}
    for step, point in next(iter(sources.values())).items():
        axes = {names.UPDATES: float(step), names.SAMPLES: samples.value_at(point), names.BYTES: moved.value_at(point)}
        values = {source: points[step].value for source, points in sources.items() if step in points}
        figures = names.completed({**values, **axes})
        if metric in figures:
            history[step] = point._replace(value=figures[metric])
    return history


def tag_is(name: str, value: str) -> str:
    """The filter for runs whose tag `name` is `value`. It may match a few more, if `value` has characters that filters
    cannot express."""
    plain = pattern(value)
    return f"tags.`{name}` = '{value}'" if plain == value else f"tags.`{name}` LIKE '{plain}'"


def pattern(text: str) -> str:
    """`text` for a LIKE in a filter; quotes, backslashes and other special characters become wildcards for one
    character."""
    return re.sub(r"[^\w .,+@:/=()\[\]{}-]", "_", text)


def _light(run: RunRecord) -> RunRecord:
    """As `listed` tells of it; with its parameters, which no database can be asked for one by one."""
    metrics = {name: value for name, value in run.metrics.items() if not name.startswith("worker_")}
    return replace(run, metrics=metrics)


def _record(run: Any) -> RunRecord:
    info, data = run.info, run.data
    return RunRecord(
        id=info.run_id,
        name=info.run_name or "",
        experiment_id=info.experiment_id,
        status=info.status,
        started=(info.start_time or 0) / 1000,
        ended=info.end_time / 1000 if info.end_time else None,
        tags=dict(data.tags),
        params=dict(data.params),
        metrics=names.completed({**_updates(data), **data.metrics}),
    )


def _updates(data: Any) -> dict[str, float]:
    """The number of updates so far: the step of the latest point of the axes."""
    steps = [point.step for point in data._metric_objs if point.key == names.SAMPLES]
    return {names.UPDATES: float(max(steps))} if steps else {}
