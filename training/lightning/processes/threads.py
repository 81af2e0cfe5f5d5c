"""Torch's threads around a fork: the monitor's do not exist in a new process, and the processes divide the cores."""

import ctypes
import os
import sys
from pathlib import Path
from typing import Any, Final

import torch

from scalebook.training.jobs import CPU_QUOTA, cpu_quota
from scalebook.training.lightning.package import rank_zero_warn
from scalebook.training.lightning.processes.cuda_fork import counting_begins_cuda, cuda_has_begun

_HARD: Final = 2  # omp_pause_hard, OpenMP 5.0
_CPU: Final = Path("/sys/devices/system/cpu")


def check_fork(device: torch.device) -> None:
    """RuntimeError if this process has done something after which its forks cannot train on `device`.

    Besides CUDA that is a backward pass for which torch has started one thread for each device (`pt_autograd_0`, ...):
    torch then rejects each backward pass in a fork. It starts them if it sees a GPU, and, in a CUDA build without a
    GPU, after `FakeTensorMode`, which `torch.compile` and `torch.export` use.
    """
    used, by_name, names = "", "", _thread_names()
    if device.type == "cuda" and cuda_has_begun():
        used = (
            "CUDA has been used in this process, so a forked worker cannot use CUDA. Creating a tensor on a GPU counts "
            "as use, and so does calling torch.cuda.is_available() before lightning is imported"
        )
        if counting_begins_cuda():
            by_name = (
                " NVML cannot count the GPUs here, for example in a MIG partition. So a Trainer that gets its strategy "
                'by name initialises CUDA to count the GPUs. Use strategy=DDP() instead of strategy="ddp".'
            )
    elif any(name.startswith("pt_autograd") for name in names):
        used = (
            "a backward pass in this process has started torch's autograd threads, so torch allows no backward pass in "
            "forked workers. Torch starts these threads on a machine with a GPU, and in a CUDA build after "
            "torch.compile or torch.export"
        )
    if used:
        raise RuntimeError(
            f"trainer.strategy: {used}. Start this run in a fresh process (a separate script, or a restarted kernel) "
            f"before any other training.{by_name}"
        )
    if "PTThreadPool" in names:
        rank_zero_warn(
            "torch.jit.fork has been used in this process, and its threads do not survive the fork of the workers. A "
            "worker that also uses torch.jit.fork would hang. If your workers use it, start this run in a fresh "
            "process."
        )


def end_pools() -> bool:
    """End this thread's OpenMP threads, which do not exist in a fork; False if they cannot be ended.

    GNU's OpenMP keeps a pool for each thread that has computed in parallel. A forked process has the pool's record but
    not its threads, and would wait for them forever. The next parallel computation here creates a new pool. This ends
    the pools of every libgomp in the process: scikit-learn brings its own. Other OpenMP runtimes handle forks
    themselves.
    """
    ended = True
    for path in _loaded("libgomp"):
        try:
            pause = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW).omp_pause_resource_all
        except (OSError, AttributeError):  # it was unloaded meanwhile, or is older than GCC 9
            ended = False
        else:
            ended &= pause(_HARD) == 0
    return ended


def shared_out(processes: int) -> int:
    """Threads for each of so many processes: what the user has set, else an equal part of the cores.

    Set means OMP_NUM_THREADS, MKL_NUM_THREADS, or `torch.set_num_threads` to another number than torch begins with. One
    process keeps torch's number, so that it computes like a Trainer without processes, to the last bit.
    """
    now = torch.get_num_threads()
    if "OMP_NUM_THREADS" in os.environ or "MKL_NUM_THREADS" in os.environ or now not in _defaults():
        return now
    return min(now, max(1, cores() // processes))


def each_of(processes: int, requested: int | None) -> int:
    """Threads for each process, after `end_pools`: `requested`, or `shared_out`; 1, with a warning, if `end_pools`
    failed."""
    threads = requested or shared_out(processes)
    if threads > 1 and not end_pools():
        rank_zero_warn(
            f"each worker computes with one thread instead of {threads}, because the OpenMP library (libgomp) of this "
            "process is too old to fork with threads. Use the library of GCC 9 or newer."
        )
        return 1
    return threads


def cores() -> int:
    """How many cores this process may use: its affinity, or its control group's quota if that is less."""
    return min(len(_affinity()), cpu_quota(CPU_QUOTA) or sys.maxsize)


def _affinity() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _defaults() -> set[int]:
    """What torch begins with: the logical cores, or, with MKL, the physical ones."""
    siblings = set()
    for core in _affinity():
        path = _CPU / f"cpu{core}" / "topology" / "thread_siblings_list"
        siblings.add(path.read_text() if path.exists() else str(core))
    return {len(_affinity()), len(siblings)}


class _Library(ctypes.Structure):
    """How `dl_iterate_phdr` begins to tell of one; the name is a path."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


_SEEN: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.c_void_p)


def _loaded(name: str) -> set[str]:
    """Paths of the libraries in this process whose file name begins so.

    Asked of the linker: the kernel's list of a process's memory is thousands of lines, and each fork looks.
    """
    paths = set()

    def see(library: Any, _size: int, _data: object) -> int:
        path = os.fsdecode(library.contents.name or b"")
        if path.rpartition("/")[2].startswith(name):
            paths.add(path)
        return 0  # go on

    ctypes.CDLL(None).dl_iterate_phdr(_SEEN(see), None)
    return paths


def _thread_names() -> set[str]:
    """Of this process's threads."""
    names = set()
    for path in Path("/proc/self/task").glob("*/comm"):
        try:
            names.add(path.read_text().strip())
        except OSError:  # it has just ended
            continue
    return names
