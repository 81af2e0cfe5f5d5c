"""A Lightning logger for one existing MLflow run: buffered, in the background, with four axes."""

import math
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only
from typing_extensions import override

from scalebook.training.tracking import names
from scalebook.training.tracking.metric_writer import MetricWriter, client_after_fork
from scalebook.training.tracking.names import BYTES, SAMPLES, SECONDS, UPDATES

if TYPE_CHECKING:
    from lightning.pytorch import Trainer
    from mlflow import MlflowClient

EPOCH: Final = "epoch"
"""Lightning adds this metric, counted from 0, to what a module logs; it is not recorded. A run's page counts epochs
from 1."""


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
    of updates in `axes`. Each new step also gets its updates, samples, seconds and bytes; an old step gets them again
    if samples or bytes have grown. Values of the whole run, `best/...` and `final/...`, are at step 0.
    """

    def __init__(
        self,
        tracking_uri: str,
        run_id: str,
        folder: Path,
        artifacts: Sequence[Path] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """`artifacts` are files of `folder`, uploaded at the start to the same relative paths; `tags` are set then."""
        super().__init__()
        self.tracking_uri, self.run_id, self.folder = tracking_uri, run_id, folder
        self.artifacts, self.tags = artifacts, tags or {}
        self.axes: Callable[[], Axes] | None = None
        """Set by the Measure callback; without it the step is Lightning's."""
        self.logged: Callable[[], Collection[str]] | None = None
        """Names of the metrics that modules have logged; set by the Measure callback."""
        self._writer: MetricWriter | None = None
        self._client: MlflowClient | None = None
        self._last = (-1, -1, 0.0)  # updates, samples and bytes at which the axes were written last

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
        if axes is not None and (position := (step, axes.samples, axes.bytes if axes.bytes > 0 else 0.0)) > self._last:
            points |= axes.points()
            self._last = position
        once = {name: points.pop(name) for name in [*points] if name.startswith(names.ONCE)}
        if once:
            self._the_writer().add(once, 0)
        self._the_writer().add(points, step)

    @rank_zero_only
    def log_system(self, metrics: Mapping[str, float], step: int, timestamp: int) -> None:
        """Log MLflow's `system/` metrics: the sample with the number `step`, taken at `timestamp` (unix ms)."""
        self._the_writer().add(dict(metrics), step, timestamp)

    def _is_lightnings(self, metrics: Mapping[str, float]) -> bool:
        """Whether the epoch among these metrics was added by Lightning, and not logged by a module."""
        logged = set(self.logged()) if self.logged is not None else set()
        return len(metrics) > 1 and EPOCH not in logged and metrics.keys() - {EPOCH} <= logged

    @override
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the whole config was recorded when the run was created."""

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
