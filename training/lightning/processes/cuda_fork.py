"""What does not survive a fork: CUDA, if anything has begun it in this process, and a process group of torch's.

After a call of the driver's `cuInit`, CUDA does not work in forks, whoever called it: torch
(`torch.cuda.is_initialized()` misses `cudaGetDeviceCount`), Triton, or a library of the user's.
"""

import ctypes
import os
import subprocess
import sys
from typing import Final

import torch
import torch.distributed as dist

_DRIVER: Final = "libcuda.so.1"
_NOT_INITIALIZED: Final = 3  # CUDA_ERROR_NOT_INITIALIZED, cuda.h
_COUNT: Final = f"""
import ctypes
driver, count = ctypes.CDLL("{_DRIVER}"), ctypes.c_int()
print(count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0)
"""
_DEADLINE_S: Final = 60.0


def cuda_has_begun() -> bool:
    """Whether `cuInit` has been called in this process; then its forks cannot use CUDA."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return True
    driver = _loaded_driver()
    return driver is not None and driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _NOT_INITIALIZED


def prepare_for_forks() -> None:
    """Keep what follows in this process from making its forks unable to train. Called before a Trainer is created.

    Torch initialises CUDA to count the GPUs if NVML fails, and for a MIG instance (`CUDA_VISIBLE_DEVICES=MIG-...`):
    then another process counts them. And the first backward pass decides which threads autograd has, for good. In a
    CUDA build of torch without a GPU it must come before the first `FakeTensorMode` (`torch.compile`, `torch.export`),
    which pretends that there is one: autograd would start a thread for it, and fail in every fork.
    """
    if torch.cuda._is_compiled() and not _has_gpu():
        torch.ones(1, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]  # torch's
        torch.cuda._cached_device_count = 0  # private, and the only way to say it
        return
    _count_gpus_apart()


def _has_gpu() -> bool:
    """Whether CUDA's driver is there, and the user has not hidden the GPUs. Loading it initialises nothing."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return False
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return False
    return True


def _count_gpus_apart() -> None:
    """Set torch's number of GPUs, as another process counts them, if torch would initialise CUDA to do so."""
    cached = torch.cuda._cached_device_count
    if cached is not None or cuda_has_begun() or not counting_begins_cuda():
        return
    if count := _counted():
        torch.cuda._cached_device_count = count  # as above


def counting_begins_cuda() -> bool:
    """Whether torch cannot count this process's GPUs by NVML."""
    return bool(torch.cuda._is_compiled()) and torch.cuda._device_count_nvml() < 0


def refuse_process_group() -> None:
    """RuntimeError where this process has one: its threads would not be there in a worker, who would wait for them."""
    if dist.is_available() and dist.is_initialized():
        raise RuntimeError(
            "torch.distributed: this process has a process group, which does not survive the fork of the workers. Call "
            "torch.distributed.destroy_process_group() first."
        )


def _loaded_driver() -> ctypes.CDLL | None:
    """CUDA's driver library, if something has loaded it."""
    try:
        return ctypes.CDLL(_DRIVER, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def _counted() -> int:
    """How many GPUs CUDA shows a process with this one's environment; 0 where it has none, or does not answer."""
    try:
        answer = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, timeout=_DEADLINE_S, check=True)
        return int(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):  # torch asks by itself then, and says what is wrong
        return 0
