"""The callbacks that every recorded run has."""

from lightning.pytorch import Callback

from scalebook.training.experiments.command_line import read
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.lightning.callbacks.curve_writer import CurveWriter
from scalebook.training.lightning.callbacks.data_wait import DataClock
from scalebook.training.lightning.callbacks.divergence import DivergenceGuard
from scalebook.training.lightning.callbacks.heartbeat import Heartbeat
from scalebook.training.lightning.callbacks.last_checkpoint import LastCheckpoint
from scalebook.training.lightning.callbacks.measure import Measure
from scalebook.training.lightning.callbacks.noise_scale import NoiseScale
from scalebook.training.lightning.callbacks.parts_recorder import PartsRecorder
from scalebook.training.lightning.callbacks.push_recorder import PushRecorder
from scalebook.training.lightning.callbacks.resource_limits import Threads
from scalebook.training.lightning.callbacks.sample_pictures import Pictures
from scalebook.training.lightning.callbacks.stop_file import StopFile
from scalebook.training.tracking.directions import modes
from scalebook.training.tracking.worker_figures import WorkerFile


def default_callbacks(
    job: JobFolder, clock: DataClock, *, threads: int, lines: bool, checkpoints: bool, noise: bool = False
) -> list[Callback]:
    """The callbacks in the order in which they act: measure first, so that the others' time does not count as the
    step's."""
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
        PartsRecorder(job.path, measure),
    ]
    if job.request().trial is not None:
        callbacks.append(CurveWriter(job, measure))
    if checkpoints:
        callbacks.append(LastCheckpoint(job.path / "checkpoints"))
    return callbacks
