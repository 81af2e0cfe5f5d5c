"""What a job uses while it runs: CPU, memory and GPUs, in samples.

They are lines of `usage.jsonl` in the job's folder, written by the supervisor, or by worker 0 of a run in the
foreground. MLflow gets them while the run goes on, and the rest when it ends.
"""

import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from scalebook.training.base.files import BrokenRecord, records, safe_reading
from scalebook.training.jobs.gpus import MIG, GpuReading, gpu_readings, nvml
from scalebook.training.jobs.job_folder import JobFolder, JobStart
from scalebook.training.tracking import names

EVERY_S: Final = 2.0
"""Interval between samples at first, s; later a thousandth of the job's age, so that the file stays small."""
FIRST_S: Final = 0.25
"""Period before the first sample, s, so that short runs have one too."""
ALL: Final = 120
"""MLflow gets each of the first so many samples, every 2nd up to twice as many, every 4th up to four times, ..."""
LARGEST: Final = 2**24
"""How much of a file is read, bytes."""
PER_MB: Final = 2**20


@dataclass(frozen=True)
class GpuWorker:
    """One process of a job on one GPU; None for what NVML does not report."""

    uuid: str
    process: str
    """`worker 3`; "" if the run is one process, which simulates all workers."""
    busy: float | None
    """Share of the time since the last sample in which the GPU computed for it, 0 to 1, by NVML."""
    memory_mb: float | None


@dataclass(frozen=True)
class Usage:
    """One sample."""

    seconds: float
    """Seconds since the job's process started."""
    cores: float
    """CPU cores that it kept busy, on average since the last sample."""
    memory_mb: float
    """Memory of all its processes; what they share is counted once."""
    gpus: list[GpuReading] = field(default_factory=list)
    """The GPUs that it holds, whoever keeps them busy."""
    workers: list[GpuWorker] = field(default_factory=list)
    """What each of its processes uses of these GPUs; empty if NVML does not know the processes."""


class UsageMeter:
    """Samples one job. Call `sample` often; it measures when a sample is due."""

    def __init__(self, job: JobFolder, started: JobStart) -> None:
        self.job, self.started = job, started
        self._began = self._due = time.monotonic() - max(0.0, time.time() - started.started)
        self._before: tuple[float, float] | None = None
        """CPU seconds so far, and when."""

    def sample(self, now: float) -> None:
        """Take a sample if one is due. `now` is time.monotonic(), s. OSError if the file cannot be written."""
        if now < self._due:
            return
        self._due = now + max(EVERY_S, (now - self._began) / 1000)
        usage = self.started.executor.usage(self.started.handle)
        if usage is None or not usage.memory_mb:  # it ends just now
            return
        before, self._before = self._before, (usage.cpu_s, now)
        if before is not None and usage.cpu_s < before[0]:  # a worker has ended, and its time is nobody's yet
            return
        if before is None:
            self._due = now + FIRST_S
            return
        span, gpus = max(now - before[1], 1e-3), self.started.gpus
        cores = max(0.0, usage.cpu_s - before[0]) / span
        pids = self.started.executor.processes(self.started.handle) if gpus else []
        workers = gpu_workers(gpus, pids, time.time() - span)
        sample = Usage(now - self._began, cores, usage.memory_mb, gpu_readings(gpus), workers)
        with file_of(self.job).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(sample)) + "\n")


def file_of(job: JobFolder) -> Path:
    return job.path / "usage.jsonl"


def read_usage(job: JobFolder) -> Sequence[Usage]:
    """All samples so far; unreadable lines are skipped."""
    return [sample for sample in _samples(job, _bytes(job)) if sample is not None]


class SystemMetrics:
    """A job's samples as MLflow's system metrics, but of the run alone: CPU is in percent of the cores that it holds.
    Which samples MLflow gets depends on their numbers alone, so sending one twice does no harm."""

    def __init__(self, job: JobFolder) -> None:
        self.job = job
        self._read = self._count = 0
        self._gpus: dict[str, int] = {}

    def news(self) -> Iterator[tuple[dict[str, float], int, int]]:
        """The samples since the last call: metrics, the sample's number, and its time, unix ms."""
        started = self.job.started()
        if started is None:
            return
        lines = _bytes(self.job, self._read)
        lines = lines[: lines.rfind(b"\n") + 1]
        self._read += len(lines)
        cores = len(started.cores) or os.cpu_count() or 1
        for sample in _samples(self.job, lines):
            number = self._count
            self._count += 1
            if sample is not None and number % (1 << (number // ALL).bit_length()) == 0:
                yield self._named(sample, cores), number, int(1000 * (started.started + sample.seconds))

    def _named(self, sample: Usage, cores: int) -> dict[str, float]:
        metrics: dict[str, float | None] = {
            "cpu_utilization_percentage": 100 * sample.cores / cores,
            "system_memory_usage_megabytes": sample.memory_mb,
        }
        for gpu in sample.gpus:
            name = f"gpu_{self._gpus.setdefault(gpu.uuid, len(self._gpus))}"
            metrics[f"{name}_utilization_percentage"] = None if gpu.busy is None else 100 * gpu.busy
            metrics[f"{name}_memory_usage_megabytes"] = gpu.memory_mb
        return {f"{names.SYSTEM}{name}": value for name, value in metrics.items() if value is not None}


def _bytes(job: JobFolder, first: int = 0) -> bytes:
    try:
        with safe_reading.opened(file_of(job)) as file:
            file.seek(first)
            return file.read(LARGEST)
    except OSError:
        return b""


def _samples(job: JobFolder, lines: bytes) -> Iterator[Usage | None]:
    """None for a line that cannot be read: half of one, of a machine that stopped."""
    path = file_of(job)
    for line in lines.splitlines():
        try:
            yield records.parse(path, line, Usage)
        except BrokenRecord:
            yield None


def gpu_workers(uuids: Collection[str], pids: Iterable[int], since: float) -> list[GpuWorker]:
    """Those of `pids` that NVML finds on these GPUs: none in a container, if NVML knows its processes by other pids.
    `since`: unix time of the last sample, s."""
    library, own_pids = nvml() if uuids else None, set(pids)
    if library is None:
        return []
    workers = []
    for uuid in uuids:
        with suppress(library.NVMLError):  # lost, or it does not tell
            handle = library.nvmlDeviceGetHandleByUUID(uuid)
            there = [
                gpu_process
                for gpu_process in library.nvmlDeviceGetComputeRunningProcesses(handle)
                if gpu_process.pid in own_pids
            ]
            busy = _busy(library, uuid, handle, since) if there else None
            for gpu_process in there:
                memory_mb = None if gpu_process.usedGpuMemory is None else gpu_process.usedGpuMemory / PER_MB
                workers.append(
                    GpuWorker(
                        uuid,
                        _name(gpu_process.pid),
                        None if busy is None else busy.get(gpu_process.pid, 0.0),
                        memory_mb,
                    )
                )
    return workers


def _busy(library: Any, uuid: str, handle: Any, since: float) -> Mapping[int, float] | None:
    """By pid, the mean over the samples that NVML has of it. None where the GPU does not tell, as an instance of one
    (MIG)."""
    if uuid.startswith(MIG):
        return None
    try:
        samples = library.nvmlDeviceGetProcessUtilization(handle, int(since * 1e6))
    except library.NVMLError_NotFound:  # nobody has computed since
        return {}
    except library.NVMLError:
        return None
    used: dict[int, list[float]] = {}
    for sample in samples:
        used.setdefault(sample.pid, []).append(sample.smUtil / 100)
    return {pid: min(1.0, fmean(shares)) for pid, shares in used.items()}


def _name(pid: int) -> str:
    """What a worker has named itself (`lightning/processes/forked.py`)."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # ended meanwhile
        return ""
    role, _, number = name.partition(" ")
    return name if role == "worker" and number.isdigit() else ""
