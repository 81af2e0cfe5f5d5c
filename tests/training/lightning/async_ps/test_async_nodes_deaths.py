"""The parameter server over two machines, one of which loses a worker, leaves, or is gone."""

import os
import re
import signal
import socket
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from scalebook.training.base.failures import NodeLost
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning import AsyncPS
from scalebook.training.lightning.processes.server_monitors import WorkersMonitor
from tests.training.lightning.async_ps.machines import outcomes
from tests.training.lightning.async_ps.small import AtBatch, Diary, diaries, fit, kill_me, trainer

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("machines_key")]

TOLD_S = 6.0
"""After a death, on both sides; and as much again for a machine that others use."""


class UntilFewer(Callback):
    """Worker 0 stops the run when a worker is gone for good, and notes when."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self.workers = folder, workers

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        strategy: Any = trainer.strategy
        if trainer.global_rank == 0 and not trainer.should_stop and len(strategy.figures.living()) < self.workers:
            (self.folder / "told").touch()
            trainer.should_stop = True


def dying(what: Callable[[Trainer], None], worker: int, folder: Path) -> Callback:
    def noted(trainer: Trainer) -> None:
        (folder / "died").touch()
        what(trainer)

    return AtBatch(worker, 5, noted)


def seconds_until(told: str, folder: Path) -> float:
    return (folder / told).stat().st_mtime - (folder / "died").stat().st_mtime


HOST = socket.gethostname()


def test_a_worker_that_dies_elsewhere_is_told_on_both_machines(tmp_path: Path, logged: StringIO) -> None:
    """And the rest, also of its machine, trains on to the same end."""

    def body() -> Any:
        made = trainer(
            tmp_path, AsyncPS(), num_nodes=2, devices=2, max_epochs=100_000,
            callbacks=[UntilFewer(tmp_path, 4), dying(kill_me, 2, tmp_path)],
        )  # fmt: skip
        weights = fit(made)
        return weights, made.global_step, logged.getvalue()

    (here, steps, said_here), (there, steps_there, said_there) = outcomes(body, tmp_path)
    assert torch.equal(here, there)
    assert steps == steps_there
    assert seconds_until("told", tmp_path) < TOLD_S
    assert f"worker 2 died: on node 1 ({HOST}), process " in said_here
    assert "was killed by signal SIGKILL. Training continues with 3 workers." in said_here
    assert "worker 2 died: process " in said_there


@pytest.mark.thorough
def test_it_comes_back_as_a_new_generation(tmp_path: Path, logged: StringIO) -> None:
    def body() -> Any:
        def once(trainer: Trainer) -> None:
            if not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                kill_me(trainer)

        callbacks = [AtBatch(1, 5, once), Diary(tmp_path)]
        made = trainer(
            tmp_path,
            AsyncPS(limits=Limits(restarts=1)),
            num_nodes=2,
            max_epochs=10,
            limit_val_batches=0,
            callbacks=callbacks,
        )
        return fit(made), made.global_step, logged.getvalue()

    (here, steps, said), (there, *_) = outcomes(body, tmp_path)
    assert torch.equal(here, there)
    assert steps == 10 * 12
    assert f"worker 1 died: on node 1 ({HOST}), process " in said
    assert "SIGKILL. Restarting it." in said
    assert len(diaries(tmp_path)[1]["train"]) > 0


@pytest.mark.thorough
def test_a_machine_that_is_told_to_stop_leaves_and_the_rest_trains_on(tmp_path: Path, logged: StringIO) -> None:
    """Also where workers meet in each step, as this model's do."""

    def body() -> Any:
        callbacks = [UntilFewer(tmp_path, 2), dying(lambda _: os.kill(os.getppid(), signal.SIGTERM), 1, tmp_path)]
        made = trainer(tmp_path, AsyncPS(), num_nodes=2, max_epochs=100_000, callbacks=callbacks)
        return fit(made), logged.getvalue()

    (_, said), stopped = outcomes(body, tmp_path)
    assert isinstance(stopped, SystemExit)
    assert f"worker 1 died: on node 1 ({HOST}), it left during training. Training continues wi" in said
    assert seconds_until("told", tmp_path) < TOLD_S


def test_when_the_server_s_machine_is_gone_the_others_end_and_a_checkpoint_goes_on(tmp_path: Path) -> None:
    saved = tmp_path / "saved" / "last.ckpt"

    def body() -> Any:
        resumed = saved if saved.exists() else None

        def gone(_trainer: Trainer) -> None:
            if resumed is None:
                until = time.monotonic() + 20
                while not (tmp_path / "heard").exists() and time.monotonic() < until:
                    time.sleep(0.01)  # a checkpoint is told by the way
                (tmp_path / "died").touch()
                os.killpg(0, signal.SIGKILL)

        saving = ModelCheckpoint(saved.parent, filename="last", enable_version_counter=False)
        callbacks = [AtBatch(0, 50, gone), saving]  # 12 batches an epoch are everybody's
        made = trainer(tmp_path, AsyncPS(), num_nodes=2, max_epochs=20, enable_checkpointing=True, callbacks=callbacks)
        with patch.object(WorkersMonitor, "_hear", hears):
            return fit(made, ckpt_path=resumed), made.global_step

    hear = WorkersMonitor._hear

    def hears(monitor: WorkersMonitor, what: str, told: Any) -> None:
        hear(monitor, what, told)
        if what == "saved":
            (tmp_path / "heard").touch()

    _, there = outcomes(body, tmp_path)
    assert isinstance(there, NodeLost)
    assert str(there).startswith(f"node 0 ({HOST}) can no longer be reached from this node, at 127.0.0.1:")
    assert f". Resume on all nodes from its checkpoint {saved}: " in str(there)
    assert re.search(r": (no later updates are known|at least [\d,]+ later updates are lost)$", str(there))
    assert seconds_until("ended-1", tmp_path) < 2 * TOLD_S
    before = torch.load(saved, weights_only=True)["global_step"]
    assert 0 < before < 20 * 12
    (here, steps), (there, steps_there) = outcomes(body, tmp_path)
    assert torch.equal(here, there)
    assert steps == steps_there
    assert 20 * 12 <= steps <= 20 * 12 + 4  # what was under way when the checkpoint was written comes again
