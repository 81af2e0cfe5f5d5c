"""Copies between the run's memory and the device that a worker computes on. No other part of the engine copies to or
from a GPU, or waits for one."""

import mmap
import os
import time
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, ClassVar, Final, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from scalebook.training.engine.memory.layout import Layout, LayoutEntry

_PORTABLE: Final = 1  # cudaHostRegisterPortable
_NO_MEMORY: Final = 2  # cudaErrorMemoryAllocation

Mark = Any
"""What `record` returns; only for `wait` of the same device."""


class Device(ABC):
    """One worker's device, used by one thread. Copies are between tensors of the same size and type.

    A copy may happen at any time, in parts and in any order, between its call and the end of `wait` for a mark recorded
    after it. Until then the host must not write to its source or use its target. On the device it comes after what was
    computed before its call, and before what is computed afterwards.
    """

    is_host: ClassVar[bool] = False
    """Whether the host computes: gradients lie in its memory already, and copies are made at once."""

    @abstractmethod
    def copy_up(self, target: Tensor, source: Tensor) -> None:
        """Copy `source`, which is registered, to the device."""

    @abstractmethod
    def copy_down(self, target: Tensor, source: Tensor) -> None:
        """Copy from the device to `target`, which is registered."""

    @abstractmethod
    def record(self) -> Mark:
        """A mark after everything copied and computed so far."""

    @abstractmethod
    def wait(self, mark: Mark) -> None:
        """Return when everything before the mark is done."""

    @abstractmethod
    def stamp(self) -> Mark:
        """A mark that also records when it is reached, for `seconds`."""

    @abstractmethod
    def seconds(self, begin: Mark, end: Mark) -> float | None:
        """Seconds between two stamps, on the device's clock; None until the later one is reached. Does not wait.
        RuntimeError if the device has failed."""

    @abstractmethod
    def register(self, memory: Tensor) -> "Registered":
        """Let the device copy from and to this host memory (uint8) directly, until the result is released or
        garbage-collected. RuntimeError if that is impossible."""


class Registered:
    """Host memory that a device copies from and to directly."""

    def release(self) -> None:
        """Unregister the memory as soon as no copy is under way."""


class Cpu(Device):
    """The host itself."""

    is_host = True

    @override
    def copy_up(self, target: Tensor, source: Tensor) -> None:
        target.copy_(source)

    copy_down = copy_up

    @override
    def record(self) -> Mark:
        return None

    @override
    def wait(self, mark: Mark) -> None:
        return

    @override
    def stamp(self) -> float:
        return time.perf_counter()

    @override
    def seconds(self, begin: Mark, end: Mark) -> float:
        return float(end - begin)

    @override
    def register(self, memory: Tensor) -> "Registered":
        return Registered()


class Cuda(Device):
    """The GPUs that a model's parameters lie on. Copies go through the streams that compute, in order."""

    def __init__(self, gpus: Sequence[torch.device]) -> None:
        self._gpus = list(gpus)

    @override
    def copy_up(self, target: Tensor, source: Tensor) -> None:
        target.copy_(source, non_blocking=True)

    copy_down = copy_up

    @override
    def record(self) -> Mark:
        return self._events(has_time=False)

    @override
    def stamp(self) -> Mark:
        return self._events(has_time=True)

    def _events(self, has_time: bool) -> list[torch.cuda.Event]:
        """One event of each GPU."""
        events = []
        for gpu in self._gpus:  # who waits for one leaves the core to others
            event = torch.cuda.Event(enable_timing=has_time, blocking=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(gpu))
            events.append(event)
        return events

    @override
    def seconds(self, begin: Mark, end: Mark) -> float | None:
        """With several GPUs, the longest."""
        if not all(event.query() for event in end):
            return None
        return max(float(first.elapsed_time(last)) for first, last in zip(begin, end, strict=True)) / 1e3

    @override
    def wait(self, mark: Mark) -> None:
        for event in mark:
            event.synchronize()

    @override
    def register(self, memory: Tensor) -> "Registered":
        return Pinned(memory, self._gpus[0])


class Pinned(Registered):
    """Memory page-locked in this process until `release`, or until this object is garbage-collected.

    `device` is the process's own, the only one that gets a context; other GPUs may use the memory too. RuntimeError if
    it cannot be locked.
    """

    def __init__(self, memory: Tensor, device: torch.device) -> None:
        with torch.cuda.device(device):
            code = int(_cudart().cudaHostRegister(memory.data_ptr(), memory.numel(), _PORTABLE))
        if code:
            name = {_NO_MEMORY: "cudaErrorMemoryAllocation"}.get(code, f"CUDA error {code}")
            raise RuntimeError(
                f"the parameters ({memory.numel() / 1e6:.0f} MB) could not be page-locked: {name}. "
                "Raise the limit on locked memory (ulimit -l), or use fewer workers."
            )
        self._taken_back = weakref.finalize(self, _unpin, memory, device, os.getpid())
        self._taken_back.atexit = False  # the process's end does it

    @override
    def release(self) -> None:
        self._taken_back()


def landing(size: int, device: Device) -> tuple[Tensor, Registered]:
    """Zeros (uint8 [size]) for the device to copy to. It takes no more than `size`, while torch's `pin_memory` takes a
    power of two.

    The memory is shared, so that after a fork no write moves it to other pages than those that a GPU has.
    """
    memory = torch.frombuffer(mmap.mmap(-1, max(size, 1)), dtype=torch.uint8)  # which takes no 0 bytes
    return memory[:size], device.register(memory[:size])


def device_of(tensors: Sequence[Tensor]) -> Device:
    """The device that these tensors lie on: the host, or one or several GPUs."""
    gpus = list(dict.fromkeys(tensor.device for tensor in tensors if tensor.device.type != "cpu"))
    return Cuda(gpus) if gpus else Cpu()


class _Run(NamedTuple):
    start: int  # bytes, in the memory that is copied from and to
    memory: Tensor  # uint8, on one device


class Image:
    """Device memory laid out like a part of the run's memory, so that one copy carries all of it. If its tensors lie on
    several devices, one copy is made for each run of neighbours on the same."""

    def __init__(self, device: Device, fields: Sequence[LayoutEntry], places: Sequence[torch.device]) -> None:
        """`fields`: consecutive entries. `places`: the device of each."""
        self._device, self._runs = device, list[_Run]()
        self.views: list[Tensor] = []
        """By field."""
        for place, pairs in groupby(zip(fields, places, strict=True), key=lambda pair: pair[1]):
            run = [field for field, _ in pairs]
            start, end = run[0].offset, run[-1].offset + run[-1].nbytes
            memory = torch.zeros(end - start, dtype=torch.uint8, device=place)
            self._runs.append(_Run(start, memory))
            mine = [replace(field, offset=field.offset - start) for field in run]
            self.views += Layout(tuple(mine), end - start).views(memory)

    def up(self, source: Tensor) -> None:
        """Copy to the device; `source` (uint8) begins at offset 0."""
        for start, memory in self._runs:
            self._device.copy_up(memory, source[start : start + memory.numel()])

    def down(self, target: Tensor) -> None:
        """Copy from the device to `target` (uint8), at the same offsets."""
        for start, memory in self._runs:
            self._device.copy_down(target[start : start + memory.numel()], memory)


def _unpin(memory: Tensor, device: torch.device, process: int) -> None:
    """Unlock memory when no copy is under way, and before it is freed, since the same address may be allocated again.
    No-op in forks of `process` (of a data loader, say), which have the object and no GPU."""
    if os.getpid() != process:
        return
    torch.cuda.synchronize(device)
    code = int(_cudart().cudaHostUnregister(memory.data_ptr()))
    if code:
        warnings.warn(f"page-locked memory could not be released: CUDA error {code}.", stacklevel=2)


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
