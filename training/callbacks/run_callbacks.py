"""The callbacks of a recorded run, in their order."""

from lightning.pytorch import Callback

from scalebook.training.callbacks.divergence import DivergenceGuard
from scalebook.training.callbacks.heartbeat import Heartbeat
from scalebook.training.callbacks.job_files import (
    CurveWriter,
    LastCheckpoint,
    LossRecorder,
    PartsRecorder,
    Pictures,
    StopFile,
)
from scalebook.training.callbacks.measure import Measure
from scalebook.training.callbacks.noise_scale import NoiseScale
from scalebook.training.callbacks.push_recorder import PushRecorder
from scalebook.training.callbacks.resource_limits import Threads
from scalebook.training.callbacks.resumed_settings import ResumedSettings
from scalebook.training.callbacks.step_clocks import DataClock
from scalebook.training.experiments import command_line
from scalebook.training.jobs import JobFolder
from scalebook.training.tracking import WorkerFile, directions


def default_callbacks(
    job: JobFolder, clock: DataClock, *, threads: int, lines: bool, checkpoints: bool, noise: bool = False
) -> list[Callback]:
    """The callbacks in the order in which they act: measure first, so that the others' time does not count as the
    step's."""
    trainer = command_line.read(job.config).get("trainer") or {} if job.config.exists() else None
    measure = Measure(
        clock, None if trainer is None else directions.modes(trainer.get("callbacks")), WorkerFile(job.path)
    )
    callbacks: list[Callback] = [
        Threads(threads),
        measure,
        *([NoiseScale(measure)] if noise else []),
        ResumedSettings(),
        DivergenceGuard(measure),
        Heartbeat(job, measure, lines=lines),
        StopFile(job, measure),
        LossRecorder(job),
        Pictures(job.path),
        PushRecorder(job.path),
        PartsRecorder(job.path, measure),
    ]
    if job.request().trial is not None:
        callbacks.append(CurveWriter(job, measure))
    if checkpoints:
        callbacks.append(LastCheckpoint(job.path / "checkpoints"))
    return callbacks
