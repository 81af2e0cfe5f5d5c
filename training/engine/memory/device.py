"""Between the run's memory and the device that a worker computes on: no other part of the engine copies to or from a
GPU, or waits for one."""

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
"""What `record` returns; of use to `wait` of the same device alone."""


class Device(ABC):
    """One worker's, used by one thread. Copies are between tensors of the same size and type.

    A copy may be made at any time between its call and the end of `wait` for a mark that was recorded after it, in
    parts, before or after others. Until then nobody may write to its source or use its target on the host. On the
    device it comes after what was computed there before its call, and before what is computed there afterwards.
    """

    is_host: ClassVar[bool] = False
    """Whether the host computes, so that gradients lie in its memory already, and copies are made at once."""

    @abstractmethod
    def copy_up(self, target: Tensor, source: Tensor) -> None:
        """Copy `source`, which is registered, to the device."""

    @abstractmethod
    def copy_down(self, target: Tensor, source: Tensor) -> None:
        """Copy from the device to `target`, which is registered."""

    @abstractmethod
    def record(self) -> Mark:
        """A mark behind all that was copied and computed so far."""

    @abstractmethod
    def wait(self, mark: Mark) -> None:
        """Return when all before the mark is over."""

    @abstractmethod
    def stamp(self) -> Mark:
        """A mark that also notes when it is reached, for `seconds`."""

    @abstractmethod
    def seconds(self, begin: Mark, end: Mark) -> float | None:
        """Between two stamps, on the clock of the device; None while the later one has not been reached. Waits for
        nothing. RuntimeError where the device has failed."""

    @abstractmethod
    def register(self, memory: Tensor) -> "Registered":
        """Let the device copy from and to these bytes (uint8) of the host by itself, until what is returned is
        released, or nobody has that any more. RuntimeError if it cannot be."""


class Registered:
    """Memory that a device copies from and to by itself."""

    def release(self) -> None:
        """Take that back, as soon as no copy is under way."""


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
    """The GPUs that a model's parameters lie on. Copies go by the streams that compute, in order."""

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
        """One of each GPU."""
        events = []
        for gpu in self._gpus:  # who waits for one leaves the core to others
            event = torch.cuda.Event(enable_timing=has_time, blocking=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(gpu))
            events.append(event)
        return events

    @override
    def seconds(self, begin: Mark, end: Mark) -> float | None:
        """Of several GPUs on the one that took longest."""
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
    """Page-locked in this process until `release`, or until nobody has this object any more.

    `device` is the process's own, which gets a context there and nowhere else; other GPUs may use the memory too.
    RuntimeError if it cannot be.
    """

    def __init__(self, memory: Tensor, device: torch.device) -> None:
        with torch.cuda.device(device):
            code = int(_cudart().cudaHostRegister(memory.data_ptr(), memory.numel(), _PORTABLE))
        if code:
            name = {_NO_MEMORY: "cudaErrorMemoryAllocation"}.get(code, f"CUDA error {code}")
            raise RuntimeError(
                f"the parameters ({memory.numel() / 1e6:.0f} MB) could not be page-locked: {name}. "
                "Raise the limit of locked memory (ulimit -l), or use fewer workers."
            )
        self._taken_back = weakref.finalize(self, _unpin, memory, device, os.getpid())
        self._taken_back.atexit = False  # the process's end does it

    @override
    def release(self) -> None:
        self._taken_back()


def landing(size: int, device: Device) -> tuple[Tensor, Registered]:
    """So many zeros (uint8) for the device to copy to: no more than these, where torch's `pin_memory` takes a power of
    two.

    Shared, so that no fork of this process makes a write move them to other pages than those which a GPU has.
    """
    memory = torch.frombuffer(mmap.mmap(-1, max(size, 1)), dtype=torch.uint8)  # which takes no 0 bytes
    return memory[:size], device.register(memory[:size])


def device_of(tensors: Sequence[Tensor]) -> Device:
    """That on which they lie: the host, or one or several GPUs."""
    gpus = list(dict.fromkeys(tensor.device for tensor in tensors if tensor.device.type != "cpu"))
    return Cuda(gpus) if gpus else Cpu()


class _Run(NamedTuple):
    start: int  # bytes, in the memory that is copied from and to
    memory: Tensor  # uint8, on one device


class Image:
    """Memory on the device laid out as a part of the run's memory is, so that one copy carries all of it; where its
    tensors lie on several devices, one copy for each row of neighbours on the same."""

    def __init__(self, device: Device, fields: Sequence[LayoutEntry], places: Sequence[torch.device]) -> None:
        """`fields`: one behind the other. `places`: where each of them lies."""
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
        """Copy to the device; `source` (uint8) begins where offsets are 0."""
        for start, memory in self._runs:
            self._device.copy_up(memory, source[start : start + memory.numel()])

    def down(self, target: Tensor) -> None:
        """Copy from the device, to where `target` (uint8) has it."""
        for start, memory in self._runs:
            self._device.copy_down(target[start : start + memory.numel()], memory)


def _unpin(memory: Tensor, device: torch.device, process: int) -> None:
    """As soon as no copy is under way; before the memory is given back, since it may come again at the same address.
    Nothing in forks of `process`, a loader's say, which have the object and no GPU."""
    if os.getpid() != process:
        return
    torch.cuda.synchronize(device)
    code = int(_cudart().cudaHostUnregister(memory.data_ptr()))
    if code:
        warnings.warn(f"page-locked memory could not be given back: CUDA error {code}.", stacklevel=2)


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
