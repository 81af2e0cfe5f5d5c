"""What a job takes of its machine while it runs: CPU, memory and GPUs, sampled by whoever watches it.

`usage.jsonl` in the job's folder, a line for each sample, written by the supervisor alone. Runs without a supervisor
(`scalebook fit` in the foreground, another machine that does not tell) have none.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from scalebook.training.files import records
from scalebook.training.files.reading import opened
from scalebook.training.files.records import Broken
from scalebook.training.jobs.folder import JobFolder, Started
from scalebook.training.jobs.gpu_workers import GpuWorker, gpu_workers
from scalebook.training.jobs.gpus import GpuReading, gpu_readings

EVERY_S: Final = 2.0
"""Between two samples at first; later a thousandth of the time that the job runs, so that a file stays small."""
LARGEST: Final = 2**24
"""Bytes of a file that are read."""


@dataclass(frozen=True)
class Usage:
    """One sample."""

    seconds: float
    """Since the job's process started."""
    cores: float
    """CPU cores busy with it, on average since the last sample."""
    memory_mb: float
    """Of all its processes; what several share is counted once."""
    gpus: list[GpuReading] = field(default_factory=list)
    """Of the GPUs that it was lent, whoever keeps them busy."""
    workers: list[GpuWorker] = field(default_factory=list)
    """What each of its processes takes of these; none where NVML does not know them."""


class UsageMeter:
    """Samples one job. Call `look` often; it measures when that is due."""

    def __init__(self, job: JobFolder, started: Started) -> None:
        self.job, self.started = job, started
        self._began = self._due = time.monotonic() - max(0.0, time.time() - started.started)
        self._before: tuple[float, float] | None = None
        """CPU seconds so far, and when."""

    def look(self, now: float) -> None:
        """`now` is time.monotonic(), s. OSError where the file cannot be written."""
        if now < self._due:
            return
        self._due = now + max(EVERY_S, (now - self._began) / 1000)
        taken = self.started.executor.taken(self.started.handle)
        if taken is None or not taken.memory_mb:  # it ends just now
            return
        before, self._before = self._before, (taken.cpu_s, now)
        if before is None:
            self._due = now + EVERY_S / 2  # the first stretch is short: brief runs have a sample too
            return
        span, gpus = max(now - before[1], 1e-3), self.started.gpus
        cores = max(0.0, taken.cpu_s - before[0]) / span
        pids = self.started.executor.processes(self.started.handle) if gpus else []
        workers = gpu_workers(gpus, pids, time.time() - span)
        sample = Usage(now - self._began, cores, taken.memory_mb, gpu_readings(gpus), workers)
        with file_of(self.job).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(sample)) + "\n")


def file_of(job: JobFolder) -> Path:
    return job.path / "usage.jsonl"


def read(job: JobFolder) -> Sequence[Usage]:
    """All samples so far; lines that cannot be read are left out."""
    path = file_of(job)
    try:
        with opened(path) as file:
            lines = file.read(LARGEST).splitlines()
    except OSError:
        return []
    samples = []
    for line in lines:
        try:
            samples.append(records.parse(path, line, Usage))
        except Broken:
            continue  # half a line, of a machine that stopped
    return samples
