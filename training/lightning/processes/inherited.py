"""What a worker inherits by the fork: open files, which would have one offset for all, and pools without their threads.

Regular files are opened again in each worker. What cannot be, and is found in the user's model or data, is reported
before training.
"""

import concurrent.futures.process as process_pools
import concurrent.futures.thread as thread_pools
import ctypes
import dis
import fcntl
import mmap
import os
import queue
import sqlite3
import stat
import subprocess
import sys
import sysconfig
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from multiprocessing.pool import RUN, Pool, ThreadPool
from multiprocessing.util import Finalize
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

import numpy as np
from torch import Tensor
from torch.nn import Module
from torch.utils.data import DataLoader, Dataset, Sampler

from scalebook.training.base import ConfigError
from scalebook.training.lightning.package import LightningDataModule, LightningModule

_KEPT: Final = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_DIRECT | os.O_NOATIME | os.O_SYNC | os.O_DSYNC
_O_PATH: Final = 0o10000000
_STANDARD: Final = range(3)


class _Description(NamedTuple):
    """An open file description, as /proc shows it (proc(5))."""

    flags: int
    offset: int
    locks: tuple[str, ...]
    """FLOCK READ, FLOCK WRITE, OFDLCK WRITE ..."""

    @property
    def access(self) -> int:
        return self.flags & os.O_ACCMODE

    @property
    def is_locked(self) -> bool:
        """Whether another description would not have its lock."""
        return any(lock != "FLOCK READ" for lock in self.locks)


def _description(descriptor: int) -> _Description | None:
    """None for what is no regular file, or only a place in the file system."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    fields = [line.partition(":")[::2] for line in lines]
    of = {name: value.strip() for name, value in fields}
    flags = int(of["flags"], 8)
    if flags & _O_PATH:
        return None
    locks = [value.split() for name, value in fields if name == "lock"]  # 1: FLOCK ADVISORY READ ...
    kinds = tuple(f"{lock[1]} {lock[3]}" for lock in locks if lock[1] != "POSIX")  # those belong to a process
    return _Description(flags, int(of["pos"]), kinds)


def own_descriptions(written: Collection[int] = ()) -> None:
    """In a forked process: give each regular file that is open for reading a description of its own, at the same
    offset, under the same number.

    A file that is open for writing keeps the common offset, so that what several processes write comes one behind the
    other; but not those in `written`, which are read too.
    """
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor in _STANDARD:
            continue
        try:
            description = _description(descriptor)
            if description is None or description.is_locked:
                continue
            if description.access == os.O_RDONLY or descriptor in written:
                _open_again(descriptor, description)
        except OSError:  # it is closed by now, or cannot be opened; `check_inherited` has reported what data use
            continue


def _open_again(descriptor: int, description: _Description) -> None:
    new = os.open(f"/proc/self/fd/{descriptor}", description.flags & _KEPT | os.O_CLOEXEC)
    try:
        os.lseek(new, description.offset, os.SEEK_SET)
        if description.locks:
            fcntl.flock(new, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.dup2(new, descriptor, inheritable=os.get_inheritable(descriptor))
    finally:
        os.close(new)


# --- pools -----------------------------------------------------------------------------------------------------------


def restart_executors() -> None:
    """In a forked process: let executors of `concurrent.futures` that were in use start threads and processes of their
    own. They would wait for those that the fork has left behind."""
    threads: Any = thread_pools._threads_queues  # the only list of executors in use
    for thread in list(threads):
        executor = thread._args[0]() if getattr(thread, "_args", ()) else None
        if isinstance(executor, thread_pools.ThreadPoolExecutor):
            new = {"_work_queue": queue.SimpleQueue(), "_idle_semaphore": threading.Semaphore(0)}
            vars(executor).update(new, _threads=set(), _shutdown_lock=threading.Lock())
    threads.clear()
    managers: Any = process_pools._threads_wakeups  # as above
    for manager in list(managers):
        executor = manager.executor_reference()
        if isinstance(executor, process_pools.ProcessPoolExecutor):
            was: Any = executor
            process_pools.ProcessPoolExecutor.__init__(
                executor, was._max_workers, was._mp_context, was._initializer, was._initargs,
                max_tasks_per_child=was._max_tasks_per_child,
            )  # fmt: skip
    managers.clear()


def _end_executors() -> None:
    """At the end of a process, before Python waits for its children: those of an executor that nobody has shut down
    would wait for tasks."""
    managers: Any = process_pools._threads_wakeups
    for manager in list(managers):
        processes = getattr(manager.executor_reference(), "_processes", None) or {}
        for process in list(processes.values()):
            process.kill()


def restart_when_used(pool: Any) -> None:
    """In a forked process: let a pool of multiprocessing start processes or threads of its own at its next task."""

    def restart() -> None:
        del pool._check_running
        of_threads = (pool._processes, pool._initializer, pool._initargs)
        if isinstance(pool, ThreadPool):
            ThreadPool.__init__(pool, *of_threads)
        else:
            Pool.__init__(pool, *of_threads, pool._maxtasksperchild, pool._ctx)

    pool._check_running = restart  # each task begins by it


class Inherited(NamedTuple):
    """What workers must not share, in the user's model or data."""

    written: list[int]
    """Descriptors of files that are open for reading and writing."""
    loaders: list[DataLoader[Any]]
    """Those whose processes have begun, and go on from epoch to epoch."""
    pools: list[Pool]
    """Pools of multiprocessing, which are running."""


def begin_worker(inherited: Inherited) -> None:
    """In a worker, before all else; the first part also in the processes that it forks, such as a DataLoader's."""

    def begin() -> None:
        own_descriptions(inherited.written)
        restart_executors()
        for pool in inherited.pools:
            restart_when_used(pool)

    begin()
    os.register_at_fork(after_in_child=begin)
    Finalize(None, _end_executors, exitpriority=10)
    for loader in inherited.loaders:
        _left_behind.append(loader._iterator)
        loader._iterator = None


_left_behind: list[Any] = []
"""Iterators over another process's loader processes. Their end would end these."""


# --- the user's model and data ---------------------------------------------------------------------------------------

_MOST: Final = 20_000
"""So many objects are looked at, at most."""
_LONGEST: Final = 1000
"""So many items of a container are."""
_DEEPEST: Final = 8
_PYTHON: Final = sysconfig.get_path("stdlib")
WHERE: Final = "Open it in setup(), or when __getitem__ first uses it."
_CLASSES: Final = (Dataset, DataLoader, Sampler, Module, LightningDataModule)
_STRATEGY_PATHS: Final = ("/dev/zero", "/dev/shm/", "/memfd:", "/SYSV")
"""Where memory that is meant to be shared comes from."""


class _Trouble(NamedTuple):
    what: str
    fix: str


def check_inherited(objects: Iterable[Any], workers: int) -> Inherited:
    """Before the fork: ConfigError, with its name, for what is found in the user's model or data and cannot be used by
    so many workers.

    Files, connections and pools are looked for in attributes of modules, data sets, loaders, samplers and of the user's
    own classes, in containers and functions there, and among globals that the methods of these classes use.
    """
    seen: set[int] = set()
    inherited = Inherited([], [], [])
    maps = _shared_maps()
    for root in objects:
        key = "model" if isinstance(root, LightningModule) else "data"
        for path, value in _walk(type(root).__name__, root, seen):
            if isinstance(value, DataLoader) and value._iterator is not None:
                inherited.loaders.append(value)
            if isinstance(value, Pool) and getattr(value, "_state", None) == RUN:
                inherited.pools.append(value)
            trouble = _file(value, inherited.written) or _memory(value, maps) or _database(value)
            if trouble is not None and workers > 1:
                raise ConfigError(key, f"{path} {trouble.what}", trouble.fix)
    return inherited


def _walk(name: str, root: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """All that is reachable, with its path; the nearest first."""
    left = deque([(name, root, 0)])
    while left and len(seen) < _MOST:
        path, value, depth = left.popleft()
        if id(value) in seen or isinstance(value, str | bytes | int | float | bool | None):
            continue
        seen.add(id(value))
        yield path, value
        if depth < _DEEPEST:
            left += [(below, each, depth + 1) for below, each in _inside(path, value, seen)]


def _inside(path: str, value: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"{path}[{key!r}]", each) for key, each in islice(value.items(), _LONGEST))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{path}[{place}]", each) for place, each in enumerate(islice(value, _LONGEST)))
    elif isinstance(value, partial):
        yield from ((path, each) for each in (value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, MethodType):
        yield path, value.__self__
    elif isinstance(value, FunctionType):
        yield from _of_function(path, value)
    elif isinstance(value, subprocess.Popen):
        yield from ((f"{path}.{name}", getattr(value, name)) for name in ("stdout", "stderr"))
    elif isinstance(value, _CLASSES) or _is_users(type(value)):
        attributes = getattr(value, "__dict__", {})
        yield from ((f"{path}.{name}", each) for name, each in attributes.items() if name != "_trainer")
        for kind in type(value).__mro__:
            if id(kind) not in seen and _is_users(kind):
                seen.add(id(kind))
                functions = [each for each in vars(kind).values() if isinstance(each, FunctionType)]
                yield from (item for each in functions for item in _of_function(f"{path}.{each.__name__}", each))


def _of_function(path: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Globals and values of outer functions that a function of the user's uses, if these are no modules or classes."""
    if not _is_users(function):
        return
    used = {name: function.__globals__[name] for name in _globals(function.__code__) if name in function.__globals__}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    for name, cell in cells:
        try:
            used[name] = cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    for name, value in used.items():
        if not isinstance(value, ModuleType | type | FunctionType):
            yield f"{path}: {name}", value


def _globals(code: CodeType) -> Iterator[str]:
    """Names of globals that it reads, and functions within it do."""
    yield from (step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _globals(inner)


def _is_users(kind: Any) -> bool:
    """Whether a class or function is the user's own: not Python's, nor an installed package's."""
    module = sys.modules.get(kind.__module__ or "")
    file = getattr(module, "__file__", None)
    if file is None:  # a notebook, or compiled into Python
        return module is not None and module.__name__ == "__main__"
    return not (file.startswith(_PYTHON) or "/site-packages/" in file or "/dist-packages/" in file)


def _file(value: Any, written: list[int]) -> _Trouble | None:
    """Also notes the file in `written`."""
    if isinstance(value, type) or not callable(getattr(type(value), "fileno", None)):
        return None
    try:
        descriptor = value.fileno()
        kind = os.fstat(descriptor)
    except Exception:  # noqa: BLE001  # of any library: it is closed, or has none
        return None
    if not isinstance(descriptor, int) or any(_is_same(kind, standard) for standard in _STANDARD):
        return None
    if stat.S_ISSOCK(kind.st_mode):
        return _Trouble("is a connection (socket), and all workers would read and write the same connection", WHERE)
    access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    if stat.S_ISFIFO(kind.st_mode) and access != os.O_WRONLY:
        return _Trouble("is a pipe, and each worker would get only part of the pipe's data", WHERE)
    description = _description(descriptor)
    if description is None or description.access == os.O_WRONLY:
        return None
    if description.is_locked:
        return _Trouble("is a locked file, so all workers would share one position in the file", WHERE)
    try:
        os.close(os.open(f"/proc/self/fd/{descriptor}", description.flags & _KEPT | os.O_CLOEXEC))
    except OSError as error:
        what = (
            f"is a file that a worker cannot open again ({error.strerror}), so all would share one position in the file"
        )
        return _Trouble(what, WHERE)
    if description.access == os.O_RDWR:
        written.append(descriptor)
    return None


def _is_same(kind: os.stat_result, standard: int) -> bool:
    try:
        return os.path.samestat(kind, os.fstat(standard))
    except OSError:  # this process has closed it
        return False


def _database(value: Any) -> _Trouble | None:
    if not isinstance(value, sqlite3.Connection):
        return None
    try:
        cursor = value.cursor()
        cursor.row_factory = None
        files = [row[2] for row in cursor.execute("PRAGMA database_list") if row[2]]
    except sqlite3.Error:  # it is closed, or another thread's
        return None
    if not files:  # in memory: each worker has a copy
        return None
    what = f"is a connection to the database {files[0]}, which SQLite does not allow several processes to share"
    return _Trouble(what, WHERE)


def _shared_maps() -> list[tuple[int, int, str]]:
    """Address ranges of files that are mapped to be written by all who map them, and the files' paths."""
    maps = []
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        if fields[1].startswith("rw") and fields[1].endswith("s") and len(fields) == 6:
            path = fields[5]
            if path.startswith("/") and not path.startswith(_STRATEGY_PATHS):
                first, last = fields[0].split("-")
                maps.append((int(first, 16), int(last, 16), path))
    return maps


def _memory(value: Any, maps: list[tuple[int, int, str]]) -> _Trouble | None:
    if not maps or not isinstance(value, np.ndarray | Tensor | mmap.mmap):
        return None
    try:
        address = _address(value)
    except (RuntimeError, TypeError, ValueError, BufferError):  # it has no memory, or is closed or read-only
        return None
    for first, last, path in maps:
        if first <= address < last:
            what = f"is a memory map of {path} that is open for writing, and all workers would write into one file"
            fix = "Map the file with mode='r', or with mode='c' if each worker's changes may stay in this worker."
            return _Trouble(what, fix)
    return None


def _address(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.ctypes.data)
    if isinstance(value, Tensor):
        return value.data_ptr()
    return ctypes.addressof(ctypes.c_char.from_buffer(value))
