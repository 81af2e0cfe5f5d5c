"""Before training, a run in which nothing moves ends with the name and the stack of whoever did not come."""

import ctypes
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import Strategy
from torch.optim import SGD

from scalebook.training.base.failures import FailureClass, TimedOut, classify
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning import DDP, AsyncPS
from scalebook.training.lightning.processes import forked, peer_monitor
from scalebook.training.lightning.processes import process_watch as stillness
from scalebook.training.lightning.processes.run_workers import run_workers
from tests.training.lightning.async_ps.small import Small, fit, trainer

pytestmark = pytest.mark.long


def hang() -> None:
    """In C, with the interpreter's lock held: no Python of this process runs any more."""
    libc = ctypes.PyDLL(None)
    while True:
        libc.sleep(1000)


class HangingSetup(Small):
    def __init__(self, workers: set[int]) -> None:
        super().__init__()
        self.workers = workers

    def setup(self, stage: str) -> None:
        if self.trainer.global_rank in self.workers:
            hang()


class HangingSGD(SGD):
    def step(self, closure: Any = None) -> Any:
        hang()


@pytest.fixture(autouse=True)
def _short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stillness, "LIMIT_S", 2.0)
    monkeypatch.setattr(stillness, "CPU_S", 0.05)
    monkeypatch.setattr(stillness, "GRACE_S", 0.5)
    monkeypatch.setattr(forked, "GRACE_S", 0.5)
    monkeypatch.setattr(peer_monitor, "LOOK_S", 0.1)  # between two looks: of a second, a third of it counts


def asynchronous() -> Strategy:
    return AsyncPS(workers=2, limits=Limits(deadline_s=40))


def served() -> Strategy:
    return AsyncPS(workers=2, host="process", limits=Limits(deadline_s=40))


def distributed() -> Strategy:
    return DDP(timeout=timedelta(seconds=40))


@pytest.mark.parametrize("strategy", [asynchronous, served, distributed])
def test_the_worker_that_does_not_come_is_named_with_its_stack(
    tmp_path: Path, strategy: Callable[[], Strategy]
) -> None:
    started = time.monotonic()
    with pytest.raises(TimedOut, match=r"^worker 1 did not reach the start of training") as caught:
        fit(trainer(tmp_path, strategy(), devices=2), HangingSetup({1}))
    assert time.monotonic() - started < 30
    assert "in hang\n" in str(caught.value)
    assert "in setup\n" in str(caught.value)
    assert "worker 0 " not in str(caught.value)
    assert classify(caught.value).failure_class is FailureClass.TIMED_OUT


def test_all_may_hang_where_an_optimizer_is_tried_out(tmp_path: Path) -> None:
    def hanging(model: LightningModule) -> Any:
        return HangingSGD(model.parameters(), lr=0.1)

    with pytest.raises(TimedOut, match=r"^worker 0 and 1 did not reach") as caught:
        fit(trainer(tmp_path, asynchronous()), Small(hanging))
    assert str(caught.value).count("in hang\n") == 2


def test_whoever_works_is_waited_for(tmp_path: Path) -> None:
    class Slow(Small):
        def setup(self, stage: str) -> None:
            until = time.monotonic() + 3.5
            while self.trainer.global_rank == 0 and time.monotonic() < until:
                torch.randn(100_000).sort()  # a fifth of the time: more than is taken for stillness
                time.sleep(0.03)

    fit(trainer(tmp_path, asynchronous(), max_epochs=1), Slow())


def test_once_it_has_begun_a_run_may_rest() -> None:
    def body(worker: int) -> int:
        time.sleep(3)
        return worker

    arrivals = iter([[0], [0], [1]])
    assert run_workers(1, body, arrivals=lambda: next(arrivals, None)) == [0]


def test_a_process_that_cannot_answer_is_named_all_the_same() -> None:
    with pytest.raises(TimedOut, match=r"(?s)worker 0 .*\(the process does not answer") as caught:
        run_workers(1, lambda _worker: os.kill(os.getpid(), signal.SIGSTOP), arrivals=lambda: [0])
    assert "is at:" in str(caught.value)
