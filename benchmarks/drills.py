"""What drills of jobs share: a workspace whose supervisor is ready, runs in it, and the loop over all drills."""

import logging
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.common import until
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.job_folder import MLFLOW_STATUS, JobFolder, Result
from scalebook.training.jobs.supervisor_handle import status
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import open_store

SHARED_MEMORY: Final = Path("/dev/shm")
STRATEGIES: Final[dict[str, Any]] = {
    "AsyncPS": {"class_path": "AsyncPS", "init_args": {"workers": 2}},
    "Peers": {"class_path": "Peers", "init_args": {"workers": 2}},
    "DDP": "ddp",
    "ModelParallel": {"class_path": "ModelParallel", "init_args": {"tensor": 2}},
}
"""Each with two workers."""


def classifier(batch_size: int = 64, **trainer: Any) -> dict[str, Any]:
    """The config of a small classifier on digits."""
    return {
        "trainer": {"accelerator": "cpu", **trainer},
        "model": {"class_path": "scalebook.training.zoo.models.MLPClassifier"},
        "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": batch_size}},
    }


def kill(process: ProcessId) -> None:
    assert process.send(signal.SIGKILL), f"{process} was dead already"
    until(lambda: not process.alive(), f"{process} to die")


@dataclass(frozen=True)
class Scene:
    """One workspace for all drills of a command."""

    workspace: Workspace
    description: Description

    def submit(self, config: dict[str, Any]) -> JobFolder:
        (job,) = job_requests.submit(self.workspace, Experiment.read(config, self.description), seeds=[1])
        return job

    def train(self, strategy: Any, epochs: int = 100_000, **trainer: Any) -> JobFolder:
        """Start a job of two workers and wait until it trains; its end is far away unless `epochs` says otherwise."""
        job = self.submit(classifier(strategy=strategy, devices=2, max_epochs=epochs, **trainer))
        until(lambda: (progress := job.progress()) is not None and progress.updates > 20, f"{job.id} to train")
        return job

    def supervisor(self) -> ProcessId:
        process = supervisor_handle.running(self.workspace)
        assert process is not None, "no supervisor is running"
        return process

    def recorded(self, job: JobFolder) -> Result:
        """The result of a job, when MLflow has been told of its end and has the same state and cause."""
        result = until(job.result, "a result")
        assert result is not None
        until(lambda: not job.unrecorded.exists(), "MLflow to be told")
        run = open_store(self.workspace).get_run(job.id)
        assert run.info.status == MLFLOW_STATUS[result.status], (run.info.status, result)
        assert run.data.tags.get(names.TAG_CAUSE, "") == result.cause, (run.data.tags, result)
        return result


@contextmanager
def scene(root: Path) -> Iterator[Scene]:
    """A workspace in an empty folder; its supervisor and fork server are ready, and end with it."""
    workspace = Workspace(root.resolve()).create()
    open_store(workspace)
    description = describe(workspace)
    with supervisor_handle.hold_supervisor(workspace):
        supervisor_handle.ensure(workspace)
        until(lambda: (now := status(workspace)) and now.warm == "ready", "the warm process")
        try:
            yield Scene(workspace, description)
        finally:
            if (last := supervisor_handle.running(workspace)) is not None:
                last.send(signal.SIGTERM)
                until(lambda: not last.alive(), "the supervisor to leave")


def perform(drills: Sequence[tuple[str, Callable[[], str]]], only: str) -> int:
    """Run the drills whose name has `only`, and print what each says; returns how many failed or left shared memory."""
    logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # it prints a traceback of each refusal
    before, failures = set(SHARED_MEMORY.iterdir()), 0
    for name, drill in drills:
        if only not in name:
            continue
        began = time.monotonic()
        try:
            said = drill()
        except (AssertionError, TimeoutError, OSError, ConfigError) as error:
            failures += 1
            said = f"NOT AS PROMISED: {type(error).__name__}: {error}"
        if left := sorted(path.name for path in set(SHARED_MEMORY.iterdir()) - before):
            failures += 1
            said += f"  SHARED MEMORY LEFT: {', '.join(left)}"
        print(f"{name:42} {time.monotonic() - began:5.1f} s  {said}", flush=True)
    print(f"{failures} failures")
    return failures
