"""Files, connections and pools that were opened before the fork."""

import fcntl
import gzip
import mmap
import multiprocessing
import os
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing.pool import ThreadPool
from multiprocessing.util import Finalize
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset
from typing_extensions import override

from scalebook.training.base.errors import ConfigError
from scalebook.training.lightning import DDP, AsyncPS, ModelParallel, Peers
from scalebook.training.lightning.processes.inherited import begin_worker, check_inherited
from scalebook.training.lightning.processes.run_workers import run_workers

pytestmark = pytest.mark.long
COUNT, NUMBERS = 64, 2048
"""Records of a file, and how often each holds its number: more than is read at once."""


def file_of_records(folder: Path) -> Path:
    path = folder / "records"
    path.write_bytes(b"".join(struct.pack("i", number) * NUMBERS for number in range(COUNT)))
    return path


class Records(Dataset[Tensor]):
    """Reads where it has sought."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def __len__(self) -> int:
        return COUNT

    @override
    def __getitem__(self, number: int) -> Tensor:
        self.file.seek(4 * number * NUMBERS)
        read = struct.unpack(f"{NUMBERS}i", self.file.read(4 * NUMBERS))
        return torch.tensor([float(number), float(min(read)), float(max(read))])


class Checks(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    @override
    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        assert torch.equal(batch[:, 1:], batch[:, :1].expand(-1, 2)), "read from another place"
        return self.layer(batch / COUNT).square().mean()  # type: ignore[no-any-return]

    @override
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.01)


def fit(strategy: Any, data: Any, workers: int = 2, **settings: Any) -> None:
    settings = {"max_epochs": 3, **settings}
    made = Trainer(
        strategy=strategy, devices=workers, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, **settings,
    )  # fmt: skip
    made.fit(Checks(), data)


STRATEGIES: dict[str, Callable[[], Any]] = {
    "async": lambda: AsyncPS(workers=2),
    "process": lambda: AsyncPS(workers=2, rule="sync", host="process"),
    "peers": lambda: Peers(workers=2),
    "ddp": DDP,
    "shards": ModelParallel,
}


def locked(file: IO[bytes], how: int) -> IO[bytes]:
    fcntl.flock(file, how)
    return file


def deleted(path: Path) -> IO[bytes]:
    file = path.open("rb")
    path.unlink()
    return file


def temporary(path: Path) -> IO[bytes]:
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # the test closes it
    file.write(path.read_bytes())
    file.flush()
    return file


HOW: dict[str, Callable[[Path], IO[bytes]]] = {
    "read": lambda path: path.open("rb"),
    "unbuffered": lambda path: path.open("rb", buffering=0),
    "read and written": lambda path: path.open("r+b"),
    "locked by readers": lambda path: locked(path.open("rb"), fcntl.LOCK_SH),
    "deleted": deleted,
    "temporary": temporary,
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", STRATEGIES)
def test_each_worker_reads_at_its_own_offset(name: str, tmp_path: Path) -> None:
    with file_of_records(tmp_path).open("rb") as file:
        fit(STRATEGIES[name](), DataLoader(Records(file), 4, shuffle=True))


@pytest.mark.sampled
@pytest.mark.parametrize("how", HOW)
def test_however_the_file_was_opened(how: str, tmp_path: Path) -> None:
    with HOW[how](file_of_records(tmp_path)) as file:
        fit(AsyncPS(workers=2), DataLoader(Records(file), 4, shuffle=True))


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["async", "ddp"])
def test_loader_processes_read_at_theirs(name: str, tmp_path: Path) -> None:
    with file_of_records(tmp_path).open("rb") as file:
        loader: DataLoader[Any] = DataLoader(Records(file), 4, shuffle=True, num_workers=2, persistent_workers=True)
        fit(STRATEGIES[name](), loader)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["async", "ddp"])
def test_loader_processes_that_were_used_before_stay_with_this_process(name: str, tmp_path: Path) -> None:
    with file_of_records(tmp_path).open("rb") as file:
        loader: DataLoader[Any] = DataLoader(Records(file), 4, num_workers=1, persistent_workers=True)
        assert sum(len(batch) for batch in loader) == COUNT
        fit(STRATEGIES[name](), loader, use_distributed_sampler=False)
        assert sum(len(batch) for batch in loader) == COUNT


def in_workers(body: Callable[[int], Any], objects: Any = (), workers: int = 2) -> list[Any]:
    inherited = check_inherited(objects, workers)

    def begun(worker: int) -> Any:
        begin_worker(inherited)
        return body(worker)

    return run_workers(workers, begun)


def test_offsets_flags_and_inheritance_stay(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("0123456789")
    with path.open("rb", buffering=0) as file:
        file.seek(4)
        os.set_inheritable(file.fileno(), True)

        def read(worker: int) -> tuple[bytes, bytes, int, bool]:
            first = file.read(2)
            flags = fcntl.fcntl(file, fcntl.F_GETFL)
            return first, file.read(2), flags, os.get_inheritable(file.fileno())

        flags = fcntl.fcntl(file, fcntl.F_GETFL)
        assert in_workers(read) == [(b"45", b"67", flags, True)] * 2
        assert file.read(2) == b"45"


@pytest.mark.parametrize("mode", ["wb", "r+b", "ab"])
def test_what_processes_write_comes_one_behind_the_other(mode: str, tmp_path: Path) -> None:
    """A log that no data read keeps its one offset."""
    path = tmp_path / "log"
    path.touch()
    with path.open(mode, buffering=0) as file:
        in_workers(lambda worker: file.write(f"worker {worker}\n".encode()))
        file.write(b"monitor\n")
    assert sorted(path.read_text().splitlines()) == ["monitor", "worker 0", "worker 1"]


def test_a_lock_stays_that_of_the_common_description(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open("rb") as file, path.open("rb") as other:
        fcntl.flock(file, fcntl.LOCK_EX)
        in_workers(lambda worker: fcntl.flock(file, fcntl.LOCK_UN), workers=1)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --- what cannot be shared -------------------------------------------------------------------------------------------


class Holder(Dataset[int]):
    def __init__(self, held: Any) -> None:
        self.held = held

    def __len__(self) -> int:
        return 1


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Makes what a test names, and closes it."""
    path = tmp_path / "data.bin"
    np.arange(8192, dtype=np.float32).tofile(path)
    with ExitStack() as ends:

        def kept(made: Any) -> Any:
            ends.callback(made.close)
            return made

        def both(made: tuple[Any, Any]) -> Any:
            kept(made[1])
            return kept(made[0])

        def pipe(end: int) -> Any:
            return [kept(os.fdopen(each, mode)) for each, mode in zip(os.pipe(), ("rb", "wb"), strict=True)][end]

        def program() -> Any:
            child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            ends.enter_context(child)
            return child

        kinds: dict[str, Callable[[], Any]] = {
            "pipe": lambda: pipe(0),
            "end of a pipe to write": lambda: pipe(1),
            "socket": lambda: both(socket.socketpair()),
            "connection": lambda: both(multiprocessing.Pipe()),
            "database": lambda: kept(sqlite3.connect(tmp_path / "some.db")),
            "database in memory": lambda: kept(sqlite3.connect(":memory:")),
            "process": program,
            "map": lambda: np.memmap(path, np.float32),
            "part of a map": lambda: np.memmap(path, np.float32)[10:20],
            "tensor": lambda: torch.from_file(str(path), shared=True, size=100),
            "mmap": lambda: kept(mmap.mmap(kept(path.open("r+b")).fileno(), 0)),
            "map to read": lambda: np.memmap(path, np.float32, mode="r"),
            "map with copies": lambda: np.memmap(path, np.float32, mode="c"),
            "shared tensor": lambda: torch.zeros(3).share_memory_(),  # type: ignore[no-untyped-call]
            "anonymous": lambda: kept(mmap.mmap(-1, 4096)),
            "queue": multiprocessing.Queue,
            "terminal": lambda: sys.stdout,
            "null": lambda: kept(Path(os.devnull).open("rb")),  # noqa: SIM115
            "log": lambda: kept((tmp_path / "log").open("w")),
            "locked": lambda: locked(kept(path.open("rb")), fcntl.LOCK_EX),
            "gzip": lambda: kept(gzip.open(path, "rb")),  # noqa: SIM115
            "array": lambda: np.zeros(5),
        }
        yield lambda kind: kinds[kind]()


SHARED = {
    "pipe": r"is a pipe, and each worker would get only part of the pipe's data\. Open it in setup\(\)",
    "socket": r"is a connection \(socket\), and all workers would read and write the same connection\. Open it",
    "connection": r"is a connection \(socket\)",
    "process": r"\.stdout is a pipe",
    "database": r"is a connection to the database /.*some\.db, which SQLite does not allow several processes",
    "map": r"is a memory map of /.*data\.bin that is open for writing.*Map the file with mode='r'",
    "part of a map": "is a memory map of /",
    "tensor": "is a memory map of /",
    "mmap": "is a memory map of /",
    "locked": "is a locked file",
}
ORDINARY = [
    "end of a pipe to write", "database in memory", "map to read", "map with copies", "shared tensor", "anonymous",
    "queue", "terminal", "null", "log", "gzip", "array",
]  # fmt: skip


@pytest.mark.parametrize("kind", SHARED)
def test_what_workers_cannot_share_is_named(kind: str, opened: Callable[[str], Any]) -> None:
    held = opened(kind)
    with pytest.raises(ConfigError, match=rf"^data: DataLoader\.dataset\.held.* ?{SHARED[kind]}"):
        check_inherited([None, DataLoader(Holder(held))], 2)
    assert check_inherited([DataLoader(Holder(held))], 1).loaders == []  # one worker has it for itself


@pytest.mark.parametrize("kind", ORDINARY)
def test_what_they_can_share_is_not(kind: str, opened: Callable[[str], Any]) -> None:
    assert check_inherited([DataLoader(Holder(opened(kind)))], 2) == ([], [], [])


CONNECTION: Any = None


class Global(Dataset[int]):
    @override
    def __getitem__(self, number: int) -> int:
        return sum(len(CONNECTION.recv(each)) for each in range(number))


class Opens(Dataset[int]):
    """Has an attribute with the name of the global, for a connection of its own."""

    @override
    def __getitem__(self, number: int) -> int:
        self.CONNECTION = socket.create_connection(("127.0.0.1", number))
        return len(self.CONNECTION.recv(number))


class Uses:
    """A class of the user's, which is no data set."""

    def __init__(self, file: Any) -> None:
        self.deeper = {"file": [file]}

    def method(self, batch: list[Any]) -> Any:
        return batch


def test_it_is_found_where_people_put_it(opened: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a data set's own object, a list, a loader's function, a global that a method uses, and in a model or data
    module."""
    connection = opened("socket")
    monkeypatch.setattr(sys.modules[__name__], "CONNECTION", connection)
    uses = Uses(connection)
    module, model = LightningDataModule(), Checks()
    module.held = uses  # type: ignore[attr-defined]
    model.held = uses  # type: ignore[assignment]
    assert check_inherited([DataLoader(Opens()), Checks()], 2) == ([], [], [])
    places = {
        r"data: DataLoader\.dataset\.datasets\[1\]\.dataset\.held\.deeper\['file'\]\[0\] is": DataLoader(
            ConcatDataset([Holder(1), Subset(Holder(uses), [0])])
        ),
        r"data: DataLoader\.collate_fn\.deeper\['file'\]\[0\] is": DataLoader(Holder(1), collate_fn=uses.method),
        r"data: list\[0\]\.worker_init_fn is": [DataLoader(Holder(1), worker_init_fn=partial(print, connection))],
        r"data: DataLoader\.collate_fn: uses\.deeper": DataLoader(Holder(1), collate_fn=lambda batch: uses),
        r"data: DataLoader\.dataset\.__getitem__: CONNECTION is": DataLoader(Global()),
        r"data: LightningDataModule\.held\.deeper": module,
        r"model: Checks\.held\.deeper": model,
    }
    for where, root in places.items():
        with pytest.raises(ConfigError, match=f"^{where}"):
            check_inherited([root], 2)


def test_it_is_reported_before_training_and_the_run_is_cleaned_up(tmp_path: Path) -> None:
    """By each strategy, which can be used again."""
    with sqlite3.connect(tmp_path / "some.db") as database:
        for make in STRATEGIES.values():
            with pytest.raises(ConfigError, match=r"^data: DataLoader\.dataset\.held is a connection to the database"):
                fit(make(), DataLoader(Holder(database)))
    database.close()


# --- pools -----------------------------------------------------------------------------------------------------------


class Pooled(Records):
    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    @override
    def __getitem__(self, number: int) -> Tensor:
        other = self.executor.submit(abs, -number).result(60)
        return torch.tensor([float(number), float(other), float(other)])


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["async", "ddp"])
@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_executors_that_were_used_before_work(kind: Callable[[int], Executor], name: str) -> None:
    with kind(2) as executor:
        data = Pooled(executor)
        assert data[3].tolist() == [3.0, 3.0, 3.0]
        fit(STRATEGIES[name](), DataLoader(data, 8), max_epochs=1)
        assert data[4].tolist() == [4.0, 4.0, 4.0]


def test_a_worker_ends_by_itself_with_an_executor_that_nobody_has_shut_down(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1) as executor:
        executor.submit(abs, -3).result(60)

        def body(worker: int) -> int:
            Finalize(None, (tmp_path / f"{worker}").touch, exitpriority=-1)  # after all processes of the worker
            return executor.submit(abs, -worker).result(60)

        assert in_workers(body) == [0, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


def test_they_work_in_loader_processes() -> None:
    with ThreadPoolExecutor(1) as executor:
        data = Pooled(executor)
        assert data[3].tolist() == [3.0, 3.0, 3.0]
        fit(AsyncPS(workers=2), DataLoader(data, 8, num_workers=1), max_epochs=1)


class PooledByPool(Records):
    def __init__(self, pool: Any) -> None:
        self.pool = pool

    @override
    def __getitem__(self, number: int) -> Tensor:
        one, (other,) = self.pool.apply(abs, (-number,)), self.pool.map(abs, [-number])
        return torch.tensor([float(number), float(one), float(other)])


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["async", "ddp"])
@pytest.mark.parametrize("make", [partial(multiprocessing.get_context("fork").Pool, 1), partial(ThreadPool, 1)])
def test_pools_that_were_used_before_work(make: Callable[[], Any], name: str) -> None:
    with make() as pool:
        data = PooledByPool(pool)
        assert data[3].tolist() == [3.0, 3.0, 3.0]
        fit(STRATEGIES[name](), DataLoader(data, 8), max_epochs=1)
        assert data[4].tolist() == [4.0, 4.0, 4.0]
    pool.join()
