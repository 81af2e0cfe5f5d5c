"""A limit on the memory of a run's processes, so that a model that is too large raises an error instead of exhausting
the machine."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MB: Final = 1_000_000


@contextmanager
def memory_limit(megabytes: int | None) -> Iterator[None]:
    """Limit this process, and each process that it forks, to `megabytes` beyond what this one has now.

    By RLIMIT_DATA (Linux 4.7), which counts private writable memory: tensors, Python objects, optimizer states, 8 MB
    for each thread's stack; not shared memory (parameters of AsyncPS) and not a GPU's. Beyond it, allocation raises
    torch's "can't allocate memory" or a MemoryError. None: no limit.
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
    """What counts against the limit: the private writable memory of this process, touched or not (VmData)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status does not report VmData")


def free_bytes() -> int | None:
    """Bytes left below the limit; None without a limit."""
    ceiling = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return None if ceiling == resource.RLIM_INFINITY else max(0, ceiling - data_bytes())


def available_bytes() -> int | None:
    """Bytes that this machine, or the process's control group, still has; None if that is not known."""
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
