"""Which batch sizes to try, and the tries: each a job of its own,
alone on the machine, under one MLflow run for the test."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from scalebook.training.base import Workspace
from scalebook.training.base.files import records
from scalebook.training.experiments import Experiment
from scalebook.training.jobs import MLFLOW_STATUS, JobFolder, Result, TrialOf, job_requests
from scalebook.training.planner.tuning.followed_job import follow
from scalebook.training.planner.tuning.tuning_config import shorten_training
from scalebook.training.tracking import names, run_start

if TYPE_CHECKING:
    from mlflow import MlflowClient

FIRST: Final = 8
AHEAD: Final = 50
"""Updates of other workers for one of worker 0: on a GPU its first one may take a hundred times as long as others."""
PRECISION: Final = 32
"""Bisection ends within 1/32 of the largest size that fits: memory cannot be told more sharply."""


class Bracket:
    """Sizes are multiples of `multiple`, at most `most`. After a size that did not fit only smaller ones are tried."""

    def __init__(self, most: int, multiple: int = 1) -> None:
        self.multiple = multiple
        self.fits = 0
        """The largest known to fit."""
        self.too_large: int | None = None
        """The smallest known not to."""
        self.most = self._down(most)

    def next(self) -> int | None:
        """The size to try now; None when the answer is `fits`."""
        if self.too_large is None:
            size = min(self.most, 2 * self.fits or max(self.multiple, self._down(FIRST)))
            return size if size > self.fits else None
        if self.too_large - self.fits <= max(self.multiple, self.fits // PRECISION):
            return None
        middle = max(self.fits + self.multiple, self._down((self.fits + self.too_large) // 2))
        return middle if middle < self.too_large else None

    def note_try(self, size: int, fits: bool) -> None:
        """Note whether a try of `size` fitted."""
        if fits:
            self.fits = max(self.fits, size)
        else:
            self.too_large = size if self.too_large is None else min(size, self.too_large)

    def lower(self, most: int) -> None:
        """Exclude sizes above `most`, for another reason than memory."""
        self.most = min(self.most, self._down(most))

    @property
    def step(self) -> int:
        """How sharp the answer is, in samples: untried sizes begin within so many."""
        return 0 if self.too_large is None else self.too_large - self.fits

    def _down(self, size: int) -> int:
        return size // self.multiple * self.multiple


CALLBACK: Final = "scalebook.training.planner.tuning.batch_try.BatchTry"
TEST: Final = "largest batch"


@dataclass(frozen=True)
class TryResult:
    """A try of one size per worker. `failure` is None if it fits; memory in MB, None if unknown or unlimited."""

    id: str
    batch_size: int
    workers: int
    failure: str | None = None
    cause: str = ""
    training_samples: int | None = None
    step_s: float | None = None
    memory_mb: float | None = None
    free_mb: float | None = None

    @property
    def samples_per_second(self) -> float | None:
        """Throughput of all workers together."""
        return self.batch_size * self.workers / self.step_s if self.step_s else None


class BatchTries:
    """Runs tries of an experiment, `updates` batches of each worker long. `memory_mb`: the ceiling for each process."""

    def __init__(
        self,
        workspace: Workspace,
        experiment: Experiment,
        updates: int,
        memory_mb: int | None,
    ) -> None:
        self.workspace, self.experiment = workspace, experiment
        self.updates, self.memory_mb = updates, memory_mb
        self._client: MlflowClient | None = None
        self._parent = ""
        self._count = 0

    def open_parent_run(self, more: Mapping[str, str]) -> None:
        """Make the MLflow run that all tries are children of, with `more` tags."""
        strategy = self.experiment.strategy
        self._client = run_start.open_store(self.workspace)
        experiment = run_start.experiment_id(self._client, self.workspace, job_requests.COMMAND_LINE)
        title = f"{TEST}, {strategy.name} × {strategy.workers}"
        tags = {**run_start.surroundings(self.workspace.root), names.TAG_TEST: TEST, names.TAG_STRATEGY: strategy.name}
        tags |= {names.TAG_WORKERS: str(strategy.workers), **more}
        self._parent = run_start.create_run(self._client, experiment, title, tags, self.experiment.written)
        self._client.update_run(self._parent, status="RUNNING")

    def run(self, size: int) -> TryResult:
        """Try `size` samples for each worker, to its end; KeyboardInterrupt ends it."""
        self._count += 1
        trial = TrialOf(self._parent, self._count, f"batch {size}", exclusive=True, memory_mb=self.memory_mb)
        (job,) = job_requests.submit(self.workspace, self._try(size), seeds=[1], trial=trial)
        tried = _tried(job, size, follow(self.workspace, job, lambda *_: None))
        if self.memory_mb is None or tried.free_mb is None:
            return tried
        return replace(tried, memory_mb=self.memory_mb - tried.free_mb)  # what the strategy itself needs included

    def close_parent_run(self, status: str, done: Sequence[TryResult], largest: int | None, workers: int) -> None:
        """Write the answer and every try to the parent run, and close it."""
        assert self._client is not None
        content = {"largest": largest, "memory_mb": self.memory_mb, "tries": [asdict(tried) for tried in done]}
        self._client.log_text(self._parent, json.dumps(content, indent=1), names.BATCHES_JSON)
        if largest is not None:
            self._client.log_metric(self._parent, names.LARGEST_BATCH, float(largest))
            self._client.log_metric(self._parent, names.LARGEST_GLOBAL, float(largest * workers))
        self._client.set_tag(self._parent, names.TAG_STATUS, status)
        self._client.set_terminated(self._parent, MLFLOW_STATUS[status])

    def _try(self, size: int) -> Experiment:
        """With enough updates for worker 0 to have `updates` whole batches, who ends the run then: every other batch
        may be a remainder, and others may be ahead."""
        strategy = self.experiment.strategy
        ahead = AHEAD if strategy.workers > 1 else 1
        updates = max(2, 2 * self.updates * strategy.workers * ahead // strategy.gradients)
        callback = {"class_path": CALLBACK, "init_args": {"batch_size": size, "updates": self.updates}}
        short = shorten_training(self.experiment, updates, callback)
        reference = short.named["data"]
        data = {"class_path": reference.name, "init_args": {**(reference.args or {}), "batch_size": size}}
        return short.with_config({**short.written, "data": data})


@dataclass(frozen=True)
class _TryReport:
    """What a try wrote down of itself (scalebook.training.planner.tuning.batch_try), as far as it came."""

    workers: int | None = None
    training_samples: int | None = None
    step_s: float | None = None
    memory_mb: float | None = None
    free_mb: float | None = None


def _tried(job: JobFolder, size: int, result: Result) -> TryResult:
    measured = records.peek(job.path / names.BATCH_JSON, _TryReport) or _TryReport()
    failure = result.failure if result.status == "failed" else None
    if result.status == "stopped":
        failure = "stopped"
    workers = measured.workers or job.request().workers
    return TryResult(
        job.id,
        size,
        workers,
        failure,
        result.cause,
        measured.training_samples,
        measured.step_s,
        measured.memory_mb,
        measured.free_mb,
    )
