"""What this machine offers jobs: the cores this process may use, and its GPUs, found without torch or CUDA."""

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scalebook.training.jobs.gpus import Gpu, gpus_here

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class NodeDevices:
    """The devices of one machine that jobs can get. `cores` are the kernel's numbers."""

    cores: list[int]
    gpus: list[Gpu] = field(default_factory=list)
    name: str = ""
    """"" for this machine."""
    has: list[str] = field(default_factory=list)
    """For another node: which of the paths that jobs name and that are not copied exist there."""

    @property
    def together(self) -> int:
        """The most GPUs that one job can have: CUDA shows a process only one MIG instance."""
        return sum(gpu.is_whole for gpu in self.gpus) or min(1, len(self.gpus))

    def lacks(self, stays: Mapping[str, str]) -> bool:
        """Whether some of these paths (by key), which a job needs, are missing here."""
        return bool(self.name) and not set(stays.values()).issubset(self.has)


@dataclass(frozen=True)
class Allocation:
    """What a job holds on one machine: numbers of cores, UUIDs of GPUs."""

    machine: str
    cores: list[int]
    gpus: list[str] = field(default_factory=list)
    idle: bool = False
    """Whether the job does not run here and only keeps the machine free of others."""


def this_machine() -> NodeDevices:
    """The cores in this process's affinity mask (no more than a container's quota), and the GPUs it may see."""
    cores = sorted(os.sched_getaffinity(0))
    return NodeDevices(cores[: cpu_quota(CPU_QUOTA) or None], gpus_here().gpus)


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
