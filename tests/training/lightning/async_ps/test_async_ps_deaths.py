"""What becomes of a run under Lightning when one of its processes dies: who goes on, who comes back, what is said."""

import os
import signal
import time
from collections.abc import Callable
from io import StringIO
from multiprocessing import Value
from pathlib import Path
from typing import Any

import psutil
import pytest
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from scalebook.training.base.failures import ServerLost, WorkerLost
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning import AsyncPS
from tests.training.lightning.async_ps.contract.models import Normalised, Plain
from tests.training.lightning.async_ps.contract.test_schedules import RATE, by_step
from tests.training.lightning.async_ps.small import SAMPLES, AtBatch, Diary, diaries, kill_me, loader, trainer

pytestmark = pytest.mark.long

EPOCHS = 4
UPDATES = EPOCHS * SAMPLES // 8
RULES = ["async", "bounded", "sync", "softsync"]
EVERY = pytest.mark.parametrize(
    ("rule", "host"),
    [  # per commit each rule under one host
        pytest.param(rule, host, marks=pytest.mark.drill if number % 2 != (host == "process") else ())
        for number, rule in enumerate(RULES)
        for host in ("inline", "process")
    ],
)


class Once(AtBatch):
    """Like AtBatch, but in the whole run only once: a worker that was started again lives."""

    def __init__(self, worker: int, batch: int, what: Callable[[Trainer], None]) -> None:
        super().__init__(worker, batch, what)
        self.happened = Value("b", 0)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        time.sleep(0.005)  # so that all workers have some batches
        if trainer.global_rank == self.worker and self.count >= self.batch and not self.happened.value:
            self.happened.value = 1
            self.what(trainer)
        self.count += 1


def run(
    folder: Path,
    strategy: AsyncPS,
    *callbacks: Callback,
    model: LightningModule | None = None,
    ckpt_path: str | None = None,
    **more: Any,
) -> None:
    before = psutil.Process().children(recursive=True)
    made = trainer(folder, strategy, max_epochs=EPOCHS, callbacks=[*callbacks, Diary(folder)], **more)
    made.fit(model or Plain(), loader(), loader(), ckpt_path=ckpt_path)
    assert set(psutil.Process().children(recursive=True)) <= set(before)  # one that an earlier test left may have gone


@EVERY
def test_training_goes_on_without_a_lost_worker(rule: Any, host: Any, tmp_path: Path, logged: StringIO) -> None:
    run(tmp_path, AsyncPS(rule=rule, host=host, workers=3, limits=Limits(deadline_s=20)), Once(1, 3, kill_me))
    seen = diaries(tmp_path)
    assert len(seen) == 2
    assert set(seen[0]["train"]) | set(seen[1]["train"]) == set(range(SAMPLES))
    assert "worker 1 died: process" in logged.getvalue()
    assert "SIGKILL. Training continues with 2 workers." in logged.getvalue()
    if rule in ("async", "bounded"):
        assert seen[0]["updates"] == UPDATES


@EVERY
def test_a_lost_worker_is_started_again(rule: Any, host: Any, tmp_path: Path, logged: StringIO) -> None:
    strategy = AsyncPS(rule=rule, host=host, workers=2, limits=Limits(restarts=1, deadline_s=20))
    run(tmp_path, strategy, Once(1, 4, kill_me), model=Plain(by_step))
    seen = diaries(tmp_path)
    assert len(seen) == 2
    assert "worker 1 died" in logged.getvalue()
    assert "Restarting it." in logged.getvalue()
    assert seen[1]["train"]
    if rule in ("async", "bounded"):
        assert seen[0]["updates"] == UPDATES
    assert seen[0]["lr"] == pytest.approx(RATE * 0.5 ** (seen[0]["updates"] // 4))
    assert seen[1]["lrs"][0] < RATE  # it joins where the others are


@pytest.mark.thorough
def test_statistics_are_those_of_the_living(tmp_path: Path) -> None:
    model = Normalised()
    run(tmp_path, AsyncPS(workers=2, limits=Limits(deadline_s=20)), Once(1, 3, kill_me), model=model)
    (seen,) = diaries(tmp_path)
    assert model.norm.running_mean is not None
    assert model.norm.running_mean.tolist() == seen["running_mean"]


class KillLater(Callback):
    """Kills worker 0 in the last epoch."""

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_rank == 0 and trainer.current_epoch == EPOCHS - 1:
            kill_me(trainer)


def test_the_death_of_worker_0_ends_the_run_and_names_the_checkpoint(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path / "kept", "{epoch}", save_top_k=-1)
    with pytest.raises(WorkerLost, match=r"worker 0 died: .* SIGKILL. Resume from .*kept/epoch=\d.ckpt") as caught:
        run(tmp_path, AsyncPS(workers=2), KillLater(), keep, enable_checkpointing=True)
    path = caught.value.cause.rpartition(" ")[2]
    assert Path(path).is_file()
    again = ModelCheckpoint(tmp_path / "kept", "{epoch}", save_top_k=-1)
    run(tmp_path, AsyncPS(workers=2), again, enable_checkpointing=True, ckpt_path=path)
    assert UPDATES <= diaries(tmp_path)[0]["updates"] <= UPDATES + 1  # a push may be under way in a snapshot


def kill_a_server(trainer: Trainer) -> None:
    monitor = psutil.Process(os.getppid())
    alive = [one for one in monitor.children() if one.status() != psutil.STATUS_ZOMBIE]  # earlier tests left others
    forks = [one for one in alive if one.cmdline() == monitor.cmdline()]
    found = [one for one in forks if one.pid != os.getpid()]
    os.kill(min(found, key=lambda one: one.pid).pid, signal.SIGKILL)  # servers are forked first


@pytest.mark.parametrize(
    "rule", [*(pytest.param(one, marks=pytest.mark.drill) for one in ("async", "sync")), "bounded", "softsync"]
)
def test_a_server_that_dies_is_started_again(rule: Any, tmp_path: Path, logged: StringIO) -> None:
    strategy = AsyncPS(rule=rule, host="process", shards=2, workers=2, limits=Limits(deadline_s=20))
    run(tmp_path, strategy, Once(0, 4, kill_a_server))
    assert "server 0 died" in logged.getvalue()
    seen = diaries(tmp_path)
    assert len(seen) == 2
    assert seen[0]["updates"] == UPDATES // (1 if rule in ("async", "bounded") else 2)


@pytest.mark.thorough
def test_a_server_that_keeps_dying_ends_the_run(tmp_path: Path) -> None:
    class KeepKilling(Callback):
        def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
            time.sleep(0.02)
            if trainer.global_rank == 0:
                kill_a_server(trainer)

    strategy = AsyncPS(host="process", workers=1, limits=Limits(deadline_s=20))
    made = trainer(tmp_path, strategy, max_epochs=200, callbacks=[KeepKilling()])
    with pytest.raises(ServerLost, match="server 0 died"):
        made.fit(Plain(), loader(), loader())
