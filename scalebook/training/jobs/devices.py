"""What this machine offers to jobs: the cores this process may use, and its GPUs, found without torch or CUDA."""

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU. `uuid` is what `CUDA_VISIBLE_DEVICES` takes; indices change with its settings, UUIDs do not."""

    uuid: str
    name: str
    memory_mb: int


@dataclass(frozen=True)
class GpuReading:
    """How a GPU stands just now."""

    uuid: str
    busy: float
    """Share of the last moment in which it computed, 0 to 1."""
    memory_mb: float
    temperature_c: float


@dataclass(frozen=True)
class Machine:
    """All of one machine that can be lent to jobs. `cores` are the kernel's numbers of them."""

    cores: list[int]
    gpus: list[Gpu] = field(default_factory=list)
    name: str = ""
    """"" for this one."""
    has: list[str] = field(default_factory=list)
    """Of another one, which of the data that jobs name and that do not travel are there."""

    def lacks(self, stays: Mapping[str, str]) -> bool:
        """Whether a job that needs these (paths by key) has to run elsewhere."""
        return bool(self.name) and not set(stays.values()).issubset(self.has)


@dataclass(frozen=True)
class Lent:
    """What a job holds of one machine: numbers of cores, UUIDs of GPUs."""

    machine: str
    cores: list[int]
    gpus: list[str] = field(default_factory=list)
    idle: bool = False
    """Held so that nothing else runs beside the job, which does not run there itself."""


def this_machine() -> Machine:
    """The cores in this process's affinity mask (no more than a container's quota), and the GPUs it may see."""
    cores = sorted(os.sched_getaffinity(0))
    return Machine(cores[: cpu_quota(CPU_QUOTA) or None], _gpus(os.environ.get("CUDA_VISIBLE_DEVICES")))


def machine_words(cores: int, gpus: Iterable[Gpu]) -> str:
    """`8 cores, 2 x NVIDIA H100 80GB HBM3`."""
    many = Counter(gpu.name for gpu in gpus)
    return ", ".join([f"{cores} core{'' if cores == 1 else 's'}", *(f"{many[name]} x {name}" for name in many)])


def cpu_quota(path: Path) -> int | None:
    """How many whole cores the control group may use (`QUOTA PERIOD` in us, or `max PERIOD`); None for all."""
    try:
        quota, period = path.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else max(1, math.ceil(int(quota) / int(period)))


def visible(gpus: list[Gpu], allowed: str | None) -> list[Gpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` lets through: indices or beginnings of UUIDs, up to an unknown one."""
    if allowed is None:
        return gpus
    gpus_: list[Gpu] = []
    for word in filter(None, (part.strip() for part in allowed.split(","))):
        if word.isdigit():
            matching = gpus[int(word) : int(word) + 1]
        else:
            matching = [gpu for gpu in gpus if gpu.uuid.startswith(word)]
        if len(matching) != 1:
            break
        gpus_ += matching
    return gpus_


@lru_cache(maxsize=4)
def _gpus(allowed: str | None) -> list[Gpu]:
    """Asked of the driver once per process, which takes longer than all else here."""
    with _nvml() as nvml:
        if nvml is None:
            return []
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return visible([_gpu(nvml, handle) for handle in handles], allowed)


def gpu_readings(uuids: Collection[str]) -> list[GpuReading]:
    """The readings of those GPUs that answer."""
    if not uuids:
        return []
    with _nvml() as nvml:
        if nvml is None:
            return []
        readings = []
        for uuid in uuids:
            try:
                handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
                busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                used = nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20
                heat = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            except nvml.NVMLError:
                continue  # lost, or without such a sensor
            readings.append(GpuReading(uuid, float(busy), float(used), float(heat)))
        return readings


def _gpu(nvml: Any, handle: Any) -> Gpu:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle).total // 2**20
    return Gpu(str(nvml.nvmlDeviceGetUUID(handle)), str(nvml.nvmlDeviceGetName(handle)), int(memory))


@contextmanager
def _nvml() -> Iterator[Any]:
    """The management library, started; None where its Python package, the driver or the GPUs are missing."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()
