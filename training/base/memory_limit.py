"""A ceiling on the memory of a run's processes, so that "too large" is an error and not the end of the machine."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MB: Final = 1_000_000


@contextmanager
def memory_limit(megabytes: int | None) -> Iterator[None]:
    """Meanwhile this process, and each that it forks, may take so many MB beyond what this one has now.

    By RLIMIT_DATA (Linux 4.7): private memory that can be written to, so tensors, Python's objects, optimizer states,
    8 MB for the stack of each thread; not what is shared (parameters of AsyncPS) and not a GPU's. What asks for more
    gets torch's "can't allocate memory" or a MemoryError. None: no ceiling.
    """
    if megabytes is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    ceiling = data_bytes() + megabytes * MB
    if before[1] != resource.RLIM_INFINITY:
        ceiling = min(ceiling, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def data_bytes() -> int:
    """What the limit is held against: the private writable memory of this process, touched or not (VmData)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status does not tell VmData")


def free_bytes() -> int | None:
    """Bytes below the ceiling now; None where there is none."""
    ceiling = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return None if ceiling == resource.RLIM_INFINITY else max(0, ceiling - data_bytes())


def available_bytes() -> int | None:
    """Memory that this machine, or the control group that this process is in, can still give; None: it does not say."""
    machine = [line for line in _lines(Path("/proc/meminfo")) if line.startswith("MemAvailable:")]
    limits = [int(line.split()[1]) * 1024 for line in machine]
    group = next((line.rpartition("::")[2] for line in _lines(Path("/proc/self/cgroup")) if "::" in line), "/")
    folder = Path(f"/sys/fs/cgroup{group}")
    most, used = _lines(folder / "memory.max"), _lines(folder / "memory.current")
    if most and used and most[0].isdigit():
        limits.append(max(0, int(most[0]) - int(used[0])))
    return min(limits, default=None)


def _lines(path: Path) -> list[str]:
    """The lines of a file of the kernel's; none where there is no such file."""
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
