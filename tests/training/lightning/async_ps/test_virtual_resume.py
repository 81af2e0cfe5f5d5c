"""A virtual run goes on from a checkpoint as real workers do: all pull, and what was under way is computed anew."""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR

from scalebook.training.base.failures import ProcessLost
from scalebook.training.callbacks.job_files import LastCheckpoint
from scalebook.training.engine.rules.clock_settings import ClockSettings, Death, Distribution, Link
from scalebook.training.engine.rules.codecs import Int8, TopK
from scalebook.training.engine.rules.damping import DelayCompensation
from scalebook.training.engine.rules.local_steps import DiLoCo, Downpour, Elastic, LocalSGD
from scalebook.training.engine.rules.update_rules import Async, Bounded, Softsync, Sync
from scalebook.training.lightning import AsyncPS
from tests.training.lightning.async_ps.small import SAMPLES, Batch, Diary, Small, diaries, fit, trainer

pytestmark = pytest.mark.long

BATCHES = SAMPLES // 8
"""Of an epoch; a run has two."""
WORKERS = 5
EVERYTHING = ClockSettings(
    Distribution("gamma", 0.1, 0.4),
    {1: 3.0},
    Distribution("lognormal", 0.004, 0.5),
    Link(0.02, 1e5),
    {},
    Link(0.0, 2e5),
    [Death(2, 0.25, 0.9), Death(3, 0.4)],
    server_process=True,
)
RULES: dict[str, Any] = {
    "async": {"rule": Async()},
    "compensated": {"rule": Async(), "damping": DelayCompensation(), "shards": 2},
    "bounded": {"rule": Bounded(1)},
    "top-k": {"push_codec": TopK(0.1), "shards": 2},
    "sync with a backup": {"rule": Sync(1)},
    "late ones stop": {"rule": Sync(2, cancel=True), "push_codec": TopK(0.3)},
    "softsync": {"rule": Softsync(3)},
    "sums": {"local": Downpour(3, 2)},
    "pulls": {"local": Downpour(1, 3)},
    "decoded": {"pull_codec": TopK(0.2), "damping": DelayCompensation()},
    "decoded between own steps": {"local": Downpour(2, 2), "pull_codec": Int8()},
    "local": {"rule": Sync(1), "local": LocalSGD(3), "push_codec": TopK(0.3)},
    "outer momentum": {"rule": Async(), "local": DiLoCo(4), "pull_codec": Int8()},
    "elastic": {"rule": Bounded(1), "local": Elastic(3)},
}


def scheduled(model: LightningModule) -> Any:
    optimizer = Adam(model.parameters(), lr=0.01)
    schedule = LambdaLR(optimizer, lambda step: 1 / (1 + 0.1 * step))
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Noisy(Small):
    """Draws from Python's and NumPy's random numbers too; of the latter one of a pair."""

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        batch[0] += 0.1 * random.random() + 0.1 * float(np.random.randn())
        return super().training_step(batch, batch_idx)


def model() -> Small:
    """Dropout, normalisation, Adam, a schedule."""
    torch.manual_seed(7)
    made = Noisy(scheduled)
    made.net.insert(1, torch.nn.BatchNorm1d(16))
    return made


class Interrupts(Callback):
    """Writes a checkpoint in the middle of the first epoch and at its end, and is killed in the second."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.count += 1
        if self.count == 7:
            trainer.save_checkpoint(self.folder / "middle.ckpt")
        if self.count == BATCHES + 3:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.save_checkpoint(self.folder / "end.ckpt")


class Stops(Callback):
    """As a person's Stop."""

    count = 0

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.count += 1
        trainer.should_stop |= self.count == 5


def run(
    folder: Path,
    arguments: Any,
    ckpt_path: Path | None = None,
    clock: Any = EVERYTHING,
    make: Callable[[], Small] = model,
    **settings: Any,
) -> Tensor:
    strategy = AsyncPS(workers=WORKERS, host="virtual", clock=clock, **arguments, record="updates")
    return fit(trainer(folder, strategy, **settings), make(), ckpt_path=ckpt_path)


def trace(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "trace").glob("*.bin"))}


@pytest.mark.parametrize("rule", RULES)
def test_two_runs_from_one_checkpoint_are_the_same_to_the_last_bit(tmp_path: Path, rule: str) -> None:
    """Random times, links, queues, deaths, a return, on either side of the checkpoint."""
    with pytest.raises(ProcessLost):
        run(tmp_path / "killed", RULES[rule], callbacks=[Interrupts(tmp_path)])
    for name in ("middle", "end"):
        first, second = (run(tmp_path / f"{name}-{n}", RULES[rule], tmp_path / f"{name}.ckpt") for n in range(2))
        assert torch.equal(first, second), name
        assert trace(tmp_path / f"{name}-0") == trace(tmp_path / f"{name}-1"), name


def quiet() -> Small:
    """Nothing is drawn while it trains."""
    torch.manual_seed(7)
    made = Small(scheduled)
    made.net = torch.nn.Sequential(*(layer for layer in made.net if not isinstance(layer, torch.nn.Dropout)))
    return made


def test_where_all_rest_at_the_end_of_an_epoch_it_is_the_uninterrupted_one(tmp_path: Path) -> None:
    arguments = {"rule": Sync()}
    clock = ClockSettings(0.1, {1: 3.0}, 0.004, Link(0.02, 1e5))  # equal for all epochs: sums in the order of arrival
    whole = run(tmp_path / "whole", arguments, clock=clock, make=quiet)
    with pytest.raises(ProcessLost):
        run(tmp_path / "killed", arguments, clock=clock, make=quiet, callbacks=[Interrupts(tmp_path)])
    assert torch.equal(run(tmp_path / "killed", arguments, tmp_path / "end.ckpt", clock, quiet), whole)


class Draws(Noisy):
    """In validations too."""

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        batch[0] += torch.randn(()) + random.random()
        super().validation_step(batch, batch_idx)


def draws() -> Small:
    torch.manual_seed(7)
    return Draws(scheduled)


@pytest.mark.thorough
def test_what_a_validation_draws_is_nobodys(tmp_path: Path) -> None:
    def weights_of(name: str, **settings: Any) -> Tensor:
        strategy = AsyncPS(workers=WORKERS, host="virtual", clock=EVERYTHING, buffers="per_worker")
        return fit(trainer(tmp_path / name, strategy, val_check_interval=1, **settings), draws())

    assert torch.equal(weights_of("validated"), weights_of("never validated", limit_val_batches=0))


def test_a_stopped_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """What had been pushed by then is applied; every other batch is seen after that, and nothing twice."""
    keep = LastCheckpoint(tmp_path)
    run(tmp_path, RULES["async"], callbacks=[Stops(), keep], enable_checkpointing=True)
    assert torch.load(keep.path, weights_only=True)["global_step"] == 5
    run(tmp_path, RULES["async"], keep.path, callbacks=[Diary(tmp_path)], max_epochs=1)
    seen = Counter(diaries(tmp_path)[0]["train"])
    assert set(seen.values()) == {1}
    assert len(seen) == SAMPLES - 5 * 8


@pytest.mark.thorough
def test_every_batch_that_is_left_is_seen_once_more(tmp_path: Path) -> None:
    with pytest.raises(ProcessLost):
        run(tmp_path, RULES["async"], callbacks=[Interrupts(tmp_path)])
    run(tmp_path, RULES["async"], tmp_path / "middle.ckpt", callbacks=[Diary(tmp_path)], max_epochs=1)
    seen = Counter(diaries(tmp_path)[0]["train"])
    assert set(seen.values()) == {1}
    assert len(seen) > SAMPLES - 7 * 8, "what was under way is computed anew"


def test_a_plain_trainer_and_real_workers_go_on_from_it_and_back(tmp_path: Path) -> None:
    with pytest.raises(ProcessLost):
        run(tmp_path, RULES["async"], callbacks=[Interrupts(tmp_path)])
    for strategy, name in (("auto", "end"), (AsyncPS(workers=2), "middle")):
        other = trainer(tmp_path, strategy)
        fit(other, model(), ckpt_path=tmp_path / f"{name}.ckpt")
        assert other.current_epoch == 2
    assert other.global_step == 2 * BATCHES, "what travelled is computed anew; a plain Trainer knows nothing of it"
    other.save_checkpoint(tmp_path / "back.ckpt")
    virtual = trainer(tmp_path, AsyncPS(workers=WORKERS, host="virtual", clock=EVERYTHING), max_epochs=3)
    fit(virtual, model(), ckpt_path=tmp_path / "back.ckpt")
    assert virtual.global_step == 3 * BATCHES
