"""The callbacks that every recorded run has."""

from lightning.pytorch import Callback

from scalebook.training.callbacks.clock import DataClock
from scalebook.training.callbacks.curve_writer import CurveWriter
from scalebook.training.callbacks.divergence import DivergenceGuard
from scalebook.training.callbacks.heartbeat import Heartbeat
from scalebook.training.callbacks.last_checkpoint import LastCheckpoint
from scalebook.training.callbacks.limits import Threads
from scalebook.training.callbacks.measure import Measure
from scalebook.training.callbacks.noise_scale import NoiseScale
from scalebook.training.callbacks.pictures import Pictures
from scalebook.training.callbacks.push_recorder import PushRecorder
from scalebook.training.callbacks.stop_file import StopFile
from scalebook.training.config.command_line import read
from scalebook.training.jobs.folder import JobFolder
from scalebook.training.tracking.directions import modes
from scalebook.training.tracking.worker_figures import WorkerFile


def default_callbacks(
    job: JobFolder, clock: DataClock, *, threads: int, lines: bool, checkpoints: bool, noise: bool = False
) -> list[Callback]:
    """In the order in which they act: measure first, so that the time of the others does not count as the step's."""
    measure = Measure(clock, modes(read(job.config)) if job.config.exists() else None, WorkerFile(job.path))
    callbacks: list[Callback] = [
        Threads(threads),
        measure,
        *([NoiseScale(measure)] if noise else []),
        DivergenceGuard(measure),
        Heartbeat(job, measure, lines=lines),
        StopFile(job, measure),
        Pictures(job.path),
        PushRecorder(job.path),
    ]
    if job.request().trial is not None:
        callbacks.append(CurveWriter(job, measure))
    if checkpoints:
        callbacks.append(LastCheckpoint(job.path / "checkpoints"))
    return callbacks
