"""A proxy for the module `pynvml`: as many GPUs as a test needs, cut or failing. What a real one says only a GPU
shows."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from scalebook.training.jobs import gpus


@dataclass
class FakeProcess:
    """`busy`: % in each of NVML's samples, by time in us; None where it does not tell."""

    used_mb: int | None
    busy: dict[int, int] | None = None


@dataclass
class FakeGpu:
    """One GPU, or an instance of one in `instances`; None of what it does not tell."""

    uuid: str
    name: str = "NVIDIA H100"
    memory_mb: int | None = 81_559
    used_mb: int = 3
    busy: int | None = 37
    """%"""
    heat: int | None = 64
    near: Sequence[int] | None = ()
    instances: "list[FakeGpu] | None" = None
    """None: it is not in MIG mode."""
    lost: bool = False
    processes: "dict[int, FakeProcess] | None" = field(default_factory=dict)
    """By pid, as NVML numbers them; None where it does not tell."""
    whole: "FakeGpu | None" = field(default=None, repr=False)
    """Of an instance."""

    def __post_init__(self) -> None:
        for instance in self.instances or ():
            instance.whole = self


def eight() -> list[FakeGpu]:
    """Of two sockets: the second half of the cores is near the second half of the GPUs."""
    return [FakeGpu(f"GPU-{n}", near=range(8) if n < 4 else range(8, 16)) for n in range(8)]


class FakeNvml:
    """`error`: with which it does not open. `opened` counts how often each process has opened it."""

    NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_DRIVER_NOT_LOADED, MISMATCH, LOST, NOT_FOUND, UNSUPPORTED = range(1, 7)
    NVML_TEMPERATURE_GPU = 0
    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        WORDS = ("", "NVML Shared Library Not Found", "Driver Not Loaded", "Driver/library version mismatch",
                 "GPU is lost", "Not Found", "Not Supported")  # fmt: skip

        def __init__(self, value: int) -> None:
            super().__init__(value)
            self.value = value

        def __str__(self) -> str:
            return self.WORDS[self.value]

    class NVMLError_NotFound(NVMLError):  # as pynvml calls it
        def __init__(self) -> None:
            super().__init__(FakeNvml.NOT_FOUND)

    def __init__(self, gpus: Sequence[FakeGpu] = (), error: int = 0) -> None:
        self.gpus, self.error = list(gpus), error
        self.opened: list[int] = []

    def nvmlInit(self) -> None:
        self._fail(self.error)
        self.opened.append(os.getpid())

    def nvmlDeviceGetCount(self) -> int:
        assert os.getpid() in self.opened, "a forked process opens it for itself"
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self._there(self.gpus[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        assert os.getpid() in self.opened, "a forked process opens it for itself"
        everything = [one for gpu in self.gpus for one in (gpu, *(gpu.instances or ()))]
        found = next((one for one in everything if one.uuid == uuid), None)
        if found is None:
            raise self.NVMLError_NotFound
        return self._there(found)

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:
        return gpu.name

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> Any:
        return SimpleNamespace(total=self._known(gpu.memory_mb) * 2**20, used=gpu.used_mb * 2**20)

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:
        return SimpleNamespace(gpu=self._known(None if gpu.whole else gpu.busy))

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[Any]:
        self._fail(self.UNSUPPORTED if gpu.processes is None else 0)
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=None if one.used_mb is None else one.used_mb * 2**20)
            for pid, one in (gpu.processes or {}).items()
        ]

    def nvmlDeviceGetProcessUtilization(self, gpu: FakeGpu, since: int) -> list[Any]:
        processes = gpu.processes or {}
        self._fail(self.UNSUPPORTED if all(one.busy is None for one in processes.values()) else 0)
        samples = [
            SimpleNamespace(pid=pid, timeStamp=at, smUtil=busy)
            for pid, one in processes.items()
            for at, busy in (one.busy or {}).items()
            if at > since
        ]
        if not samples:
            raise self.NVMLError_NotFound
        return samples

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> int:
        return self._known(None if gpu.whole else gpu.heat) + sensor

    def nvmlDeviceGetCpuAffinity(self, gpu: FakeGpu, words: int) -> list[int]:
        numbers = range(0) if gpu.near == () else gpu.near
        self._fail(self.UNSUPPORTED if numbers is None else 0)
        return [sum(1 << n % 64 for n in numbers or () if n // 64 == word) for word in range(words)]

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:
        if gpu.instances is None and gpu.name.endswith("4090"):
            self._fail(self.UNSUPPORTED)
        return [int(gpu.instances is not None)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> FakeGpu:
        if index >= len(gpu.instances or ()):
            raise self.NVMLError_NotFound
        assert gpu.instances is not None
        return gpu.instances[index]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, gpu: FakeGpu) -> FakeGpu:
        assert gpu.whole is not None
        return gpu.whole

    def _there(self, gpu: FakeGpu) -> FakeGpu:
        self._fail(self.LOST if gpu.lost else 0)
        return gpu

    def _known(self, figure: int | None) -> int:
        self._fail(self.UNSUPPORTED if figure is None else 0)
        assert figure is not None
        return figure

    def _fail(self, error: int) -> None:
        if error:
            raise self.NVMLError(error)


def forget() -> None:
    """What this process knows of its GPUs, it asks anew."""
    gpus._opened.cache_clear()
    gpus._found.cache_clear()


Put = Callable[..., FakeNvml]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """`nvml([FakeGpu(...), ...])`, `nvml(error=...)`: in the place of `pynvml`, beside a torch that could use them."""

    def put(fakes: Sequence[FakeGpu] = (), error: int = 0) -> FakeNvml:
        fake = FakeNvml(fakes, error)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        monkeypatch.setattr(gpus, "cpu_build", lambda: None)
        monkeypatch.delenv(gpus.VISIBLE, raising=False)
        monkeypatch.delenv(gpus.ORDER, raising=False)
        forget()
        return fake

    yield put
    monkeypatch.undo()
    forget()
