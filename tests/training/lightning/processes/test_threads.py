"""What a process did before it forks workers, and how many threads each of them has."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from scalebook.training.lightning.processes import threads
from scalebook.training.lightning.processes.run_workers import run_workers

SCRIPT = """
import os, sys, threading, time, warnings
import torch
from torch import nn
warnings.simplefilter("ignore")
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset
from scalebook.training.lightning import DDP, AsyncPS


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(64, 8)

    def training_step(self, batch, batch_idx):
        return (self.net(batch[0]) / batch[0].std()).square().mean()

    def on_train_end(self):
        line = f"worker {self.global_rank} threads {torch.get_num_threads()}\\n"
        sys.stdout.flush()
        os.write(1, line.encode())  # in one piece: both workers write

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


x = torch.randn(4000, 64)


def fit(strategy, devices=2):
    made = Trainer(strategy=strategy, accelerator="cpu", devices=devices, max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    made.fit(Model(), DataLoader(TensorDataset(x), batch_size=1000))


x = (x - x.mean(0)) / x.std(0)
fit(AsyncPS(workers=2))
import numpy
from sklearn.ensemble import HistGradientBoostingClassifier
torch.set_num_threads(3)
torch.randn(500, 500) @ torch.randn(500, 500)
nn.Conv2d(8, 8, 3)(torch.randn(16, 8, 32, 32)).sum().backward()
numpy.linalg.svd(numpy.random.randn(200, 200))
HistGradientBoostingClassifier(max_iter=2).fit(x[:, :4].numpy(), (x[:, 5] > 0).numpy())
for batch in DataLoader(TensorDataset(x), batch_size=1000, num_workers=1):
    batch[0].std(0)
fit("auto", 1)
fit(AsyncPS(workers=2))
fit(DDP())
x.std(0)
beside = threading.Thread(target=lambda: (x.std(0), torch.set_num_threads(5), fit(AsyncPS(workers=2, host="process"))))
beside.start()
beside.join()
"""


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """What the workers of all fits say. The program is run as by a person: no word of threads in its environment."""
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("worker")]


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_tensors_before_the_fork_hang_nobody_and_the_cores_are_shared_out(lines: list[str]) -> None:
    each = max(1, threads.cores() // 2)
    assert sorted(lines[:2]) == [f"worker {worker} threads {each}" for worker in (0, 1)]


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_whatever_was_computed_before_workers_train_with_the_threads_that_were_set(lines: list[str]) -> None:
    after = lines[2:]
    assert after[0] == "worker 0 threads 3"
    assert sorted(after[1:3]) == sorted(after[3:5]) == ["worker 0 threads 3", "worker 1 threads 3"]
    assert sorted(after[5:]) == ["worker 0 threads 5", "worker 1 threads 5"]


def test_a_pool_is_ended_and_made_anew() -> None:
    run_workers(1, lambda _worker: None)  # a fork ends those of OpenBLAS for good
    torch.set_num_threads(4)  # the fixture of this folder sets it back
    torch.randn(20000, 64).std(0)
    many = native()
    assert threads.end_pools()
    assert run_workers(1, lambda _worker: (torch.ones(20000, 64).sum().item(), torch.get_num_threads()), threads=5) == [
        (20000 * 64, 5)
    ]
    torch.randn(20000, 64).std(0)
    assert native() == many


def native() -> int:
    """Threads of this process that are none of Python's: those that earlier tests left may end meanwhile."""
    return len({int(name) for name in os.listdir("/proc/self/task")} - {one.native_id for one in threading.enumerate()})


@pytest.mark.parametrize(
    ("now", "environment", "processes", "expected"),
    [
        (8, {}, 2, 4),
        (4, {}, 2, 4),  # the physical cores: what torch begins with, with MKL
        (8, {}, 3, 2),
        (8, {}, 9, 1),
        (8, {}, 1, 8),
        (4, {}, 1, 4),
        (3, {}, 4, 3),  # set by the person
        (1, {}, 2, 1),
        (9, {}, 2, 9),
        (8, {"OMP_NUM_THREADS": "8"}, 4, 8),
        (8, {"MKL_NUM_THREADS": "8"}, 4, 8),
    ],
)
def test_cores_are_shared_out_unless_the_person_has_set_threads(
    now: int,
    environment: dict[str, str],
    processes: int,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    monkeypatch.setattr(threads, "cpu_quota", lambda _path: None)
    monkeypatch.setattr(threads, "_CPU", tmp_path)
    for core in range(8):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 4},{core % 4 + 4}\n")
    torch.set_num_threads(now)
    assert threads.shared_out(processes) == expected


def test_a_quota_counts_as_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    monkeypatch.setattr(threads, "cpu_quota", lambda _path: 3)
    assert threads.cores() == 3


def test_an_old_openmp_means_one_thread_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    (libc,) = [path for path in threads._loaded("libc.") if "/libc." in path]
    monkeypatch.setattr(threads, "_loaded", lambda _name: {libc})  # a library without the function
    with pytest.warns(UserWarning, match="one thread instead of 4, because the OpenMP library"):
        assert threads.each_of(2, 4) == 1
    assert threads.each_of(2, 1) == 1


@contextmanager
def a_thread_called(name: str) -> Iterator[None]:
    end, named = threading.Event(), threading.Event()

    def wait() -> None:
        ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME
        named.set()
        end.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    named.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()
        until = time.monotonic() + 10
        while name in threads._thread_names():  # the kernel takes it off its list a moment later
            assert time.monotonic() < until


def test_a_gpu_that_was_used_before_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    threads.check_fork(torch.device("cuda"))
    with (
        a_thread_called("pt_autograd_0"),
        pytest.raises(RuntimeError, match=r"autograd threads, .* Start this run in a fresh"),
    ):
        threads.check_fork(torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    threads.check_fork(torch.device("cpu"))
    with pytest.raises(RuntimeError, match=r"CUDA has been used in this process, .* Start this run in a fresh process"):
        threads.check_fork(torch.device("cuda"))


def test_threads_of_torchscript_are_warned_of() -> None:
    with a_thread_called("PTThreadPool"), pytest.warns(UserWarning, match=r"torch\.jit\.fork has been used"):
        threads.check_fork(torch.device("cpu"))
