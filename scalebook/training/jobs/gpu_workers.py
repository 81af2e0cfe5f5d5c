"""What each worker of a job takes of its GPUs, as NVML tells it of their processes."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from scalebook.training.jobs.gpus import MIG, nvml

PER_MB: Final = 2**20


@dataclass(frozen=True)
class GpuWorker:
    """One process of a job on one GPU; None of what NVML does not tell."""

    uuid: str
    process: str
    """`worker 3`; "" where the run is one process, which plays all of its workers."""
    busy: float | None
    """Share of the time in which the GPU computed for it, 0 to 1, in NVML's samples since the last one here."""
    memory_mb: float | None


def gpu_workers(uuids: Collection[str], pids: Iterable[int], since: float) -> list[GpuWorker]:
    """Of those `pids` that NVML finds on these GPUs: none in a container whose processes have other numbers than NVML
    knows them by. `since`: unix time of the last sample, s."""
    library, mine = nvml() if uuids else None, set(pids)
    if library is None:
        return []
    workers = []
    for uuid in uuids:
        with suppress(library.NVMLError):  # lost, or it does not tell
            handle = library.nvmlDeviceGetHandleByUUID(uuid)
            there = [one for one in library.nvmlDeviceGetComputeRunningProcesses(handle) if one.pid in mine]
            busy = _busy(library, uuid, handle, since) if there else None
            for one in there:
                memory_mb = None if one.usedGpuMemory is None else one.usedGpuMemory / PER_MB
                workers.append(
                    GpuWorker(uuid, _name(one.pid), None if busy is None else busy.get(one.pid, 0.0), memory_mb)
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
    """What a worker has named itself (`strategies/forked.py`)."""
    try:
        told = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # ended meanwhile
        return ""
    role, _, number = told.partition(" ")
    return told if role == "worker" and number.isdigit() else ""
