"""Lightning's logger for one MLflow run that exists already: buffered, in the background, against four axes."""

import math
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only
from typing_extensions import override

from scalebook.training.tracking import names
from scalebook.training.tracking.names import BYTES, SAMPLES, SECONDS, UPDATES
from scalebook.training.tracking.writer import MetricWriter, client_after_fork

if TYPE_CHECKING:
    from lightning.pytorch import Trainer
    from mlflow import MlflowClient


class Axes(NamedTuple):
    """Where a point belongs: updates, samples and bytes over all workers, seconds since the first training batch."""

    updates: int
    samples: int
    seconds: float
    bytes: float = math.nan
    """Pushed and pulled; NaN where nobody counts them."""

    def points(self) -> dict[str, float]:
        """By metric; those that are known."""
        by_name = {UPDATES: float(self.updates), SAMPLES: float(self.samples), SECONDS: self.seconds}
        return by_name if math.isnan(self.bytes) else {**by_name, BYTES: self.bytes}


class RunLogger(Logger):
    """Writes metrics of the run `run_id`; its parameters, tags and end belong to whoever made the run.

    Only worker 0 writes, from a thread that starts with its first point, after any fork. The step of every point is the
    number of updates that `axes` tells, and each new step also gets its updates, samples, seconds and bytes; again
    where more samples have been computed since, which are still on their way into an update. Values of the whole run,
    `best/...` and `final/...`, are at step 0.
    """

    def __init__(
        self,
        tracking_uri: str,
        run_id: str,
        folder: Path,
        artifacts: Sequence[Path] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """`artifacts` are files of `folder`, uploaded at the start to the same places below the run's; `tags` are
        set then."""
        super().__init__()
        self.tracking_uri, self.run_id, self.folder = tracking_uri, run_id, folder
        self.artifacts, self.tags = artifacts, tags or {}
        self.axes: Callable[[], Axes] | None = None
        """Set by the Measure callback; without it the step is Lightning's."""
        self._writer: MetricWriter | None = None
        self._client: MlflowClient | None = None
        self._last = (-1, -1)  # updates and samples at which the axes were written last

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
        """A client of this process's own, for artifacts and tags."""
        if self._client is None:
            self._client = client_after_fork(self.tracking_uri)
        return self._client

    @rank_zero_only
    def start(self) -> None:
        """Connect in the background, so that the first point finds a connection. Call it in the worker."""
        self._the_writer().start()

    @override
    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        axes = self.axes() if self.axes is not None else None
        step = axes.updates if axes is not None else step or 0
        points = dict(metrics)
        if axes is not None and (step, axes.samples) > self._last:
            points |= axes.points()
            self._last = (step, axes.samples)
        once = {name: points.pop(name) for name in metrics if name.startswith(names.ONCE)}
        if once:
            self._the_writer().add(once, 0)
        self._the_writer().add(points, step)

    @override
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the whole config was recorded when the run was made."""

    @rank_zero_only
    def log_artifact(self, path: Path) -> None:
        """Upload a file to the top of the run's artifacts."""
        self.experiment.log_artifact(self.run_id, str(path))

    @override
    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Write what is left. The run's status is set by whoever knows how the whole run ended."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _the_writer(self) -> MetricWriter:
        if self._writer is None:
            places = {path: str(path.parent.relative_to(self.folder)) for path in self.artifacts}
            self._writer = MetricWriter(self.tracking_uri, self.run_id, places, self.tags)
        return self._writer


def upload(trainer: "Trainer", path: Path) -> None:
    """Put a file to the artifacts of the run, where it is recorded; by worker 0."""
    for logger in trainer.loggers:
        if isinstance(logger, RunLogger):
            logger.log_artifact(path)
