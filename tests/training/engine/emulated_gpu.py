"""GPUs that are none: parameters say that they are on one, their values lie on the CPU, and CUDA's calls are noted."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

PAGE = 4096


class OnGpu(Parameter):
    """A parameter of GPU number `gpu`."""

    gpu: int

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # an attribute there
        return torch.device("cuda", self.gpu)

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]  # as above
        return True


class _OnCpu(TorchFunctionMode):
    """Whatever is to be made on a GPU is made on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.pop("pin_memory", False):
            raise AssertionError("torch's cache of page-locked memory takes a power of two")
        return func(*map(_here, args), **{name: _here(value) for name, value in kwargs.items()})


def _here(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value


class Gpus:
    """`registered`: sizes of what is page-locked, by address. `contexts`: GPUs on which this process has one.
    `synchronised`: which was waited for, in order."""

    def __init__(self) -> None:
        self.current = 0
        self.registered: dict[int, int] = {}
        self.contexts: set[int] = set()
        self.synchronised: list[int] = []
        self.most_registered = 0
        self.busy_until: dict[int, float] = {}
        self.code = 0

    def parameter(self, values: Tensor, index: int = 0) -> OnGpu:
        made = OnGpu(values)
        made.gpu = index
        return made

    def compute(self, seconds: float, index: int = 0) -> None:
        """Put work into the queue of a GPU; Python goes on."""
        self.busy_until[index] = max(time.perf_counter(), self.busy_until.get(index, 0.0)) + seconds

    def synchronize(self, device: torch.device) -> None:
        assert device.index is not None
        self.contexts.add(device.index)
        self.synchronised.append(device.index)
        time.sleep(max(0.0, self.busy_until.get(device.index, 0.0) - time.perf_counter()))

    @contextmanager
    def use(self, device: torch.device) -> Iterator[None]:
        before, self.current = self.current, device.index
        yield
        self.current = before

    def cudart(self) -> "Gpus":
        return self

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        self.contexts.add(self.current)
        if self.code:
            return self.code
        if any(at < address + size and address < at + length for at, length in self.registered.items()):
            return 712  # cudaErrorHostMemoryAlreadyRegistered
        assert address % PAGE == 0
        assert flags == 1, "other GPUs cannot use it"
        self.registered[address] = size
        self.most_registered = max(self.most_registered, sum(self.registered.values()))
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        return 0 if self.registered.pop(address, None) is not None else 713  # cudaErrorHostMemoryNotRegistered


class _Event:
    """Reached when all that was put into the queue before it is over; a stream when it is not recorded."""

    def __init__(self, gpus: Gpus, device: torch.device | None = None, has_time: bool = False) -> None:
        self._gpus, self._device, self._has_time = gpus, device, has_time
        self._at = 0.0

    def record(self, stream: "_Event") -> None:
        assert stream._device is not None
        self._device = stream._device
        self._at = max(time.perf_counter(), self._gpus.busy_until.get(self._device.index or 0, 0.0))

    def query(self) -> bool:
        return time.perf_counter() >= self._at

    def elapsed_time(self, end: "_Event") -> float:
        """In ms."""
        assert self._has_time, "it was made without enable_timing"
        assert end._has_time, "it was made without enable_timing"
        assert end.query(), "not reached yet"
        return 1e3 * (end._at - self._at)

    def synchronize(self) -> None:
        assert self._device is not None
        self._gpus.contexts.add(self._device.index or 0)
        self._gpus.synchronised.append(self._device.index or 0)
        time.sleep(max(0.0, self._at - time.perf_counter()))


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    made = Gpus()
    monkeypatch.setattr(torch.cuda, "synchronize", made.synchronize)
    monkeypatch.setattr(torch.cuda, "device", made.use)
    monkeypatch.setattr(torch.cuda, "cudart", made.cudart)
    monkeypatch.setattr(
        torch.cuda, "Event", lambda enable_timing=False, blocking=False: _Event(made, has_time=enable_timing)
    )
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: _Event(made, device))
    with _OnCpu():
        yield made
