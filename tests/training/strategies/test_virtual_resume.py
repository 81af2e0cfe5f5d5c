"""A virtual run that was interrupted goes on to the last bit: weights and trace are those of the uninterrupted one."""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import Adagrad, Adam
from torch.optim.lr_scheduler import LambdaLR

from scalebook.training.callbacks.last_checkpoint import LastCheckpoint
from scalebook.training.failures import ProcessLost
from scalebook.training.ps.policy.clock import ClockSettings, Death, Distribution, Link
from scalebook.training.ps.policy.codecs import Int8, TopK
from scalebook.training.ps.policy.damping import DelayCompensation
from scalebook.training.ps.policy.local import DiLoCo, Downpour, Elastic, LocalSGD
from scalebook.training.ps.policy.rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.ps.worker.end import Need
from scalebook.training.strategies import AsyncPS
from scalebook.training.strategies.refused import announce_kept
from tests.training.ps.custom_optimizers import Estimating
from tests.training.strategies.small import SAMPLES, Batch, Diary, Small, diaries, fit, trainer

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
    "compensated": {"rule": Async(), "damping": DelayCompensation(), "shards": 2, "norms": True},
    "bounded": {"rule": Bounded(1)},
    "top-k": {"push_codec": TopK(0.1), "shards": 2},
    "sync with a backup": {"rule": Sync(1)},
    "late ones stop": {"rule": Sync(2, cancel=True), "push_codec": TopK(0.3)},
    "softsync": {"rule": Softsync(3)},
    "sums": {"local": Downpour(3, 2)},
    "pulls": {"local": Downpour(1, 3)},
    "decoded": {"pull_codec": TopK(0.2), "pull_delta": True, "damping": DelayCompensation(), "norms": True},
    "decoded between own steps": {"local": Downpour(2, 2), "pull_codec": Int8()},
    "local": {"rule": Sync(1), "local": LocalSGD(3), "push_codec": TopK(0.3)},
    "outer momentum": {"rule": Async(), "local": DiLoCo(4), "pull_codec": Int8(), "pull_delta": True},
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


class Tabled(Small):
    """With a row of a sparse table for each sample, and two that are often asked for."""

    def __init__(self) -> None:
        torch.manual_seed(7)
        super().__init__(lambda model: Adagrad(model.parameters(), lr=0.05))
        self.table = torch.nn.Embedding(SAMPLES + 2, 3, sparse=True)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        often = SAMPLES + batch[2] % 2
        return cross_entropy(self.net(batch[0]) + self.table(batch[2]) + self.table(often), batch[1])


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
    strategy = AsyncPS(workers=WORKERS, host="virtual", clock=clock, trace=True, **arguments)
    return fit(trainer(folder, strategy, **settings), make(), ckpt_path=ckpt_path)


def trace(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "trace").glob("*.bin"))}


@pytest.mark.parametrize("rule", RULES)
def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path: Path, rule: str) -> None:
    """Random times, links, queues, deaths, a return, on either side of the checkpoint."""
    whole = run(tmp_path / "whole", RULES[rule])
    with pytest.raises(ProcessLost):
        run(tmp_path / "killed", RULES[rule], callbacks=[Interrupts(tmp_path)])
    for name in ("middle", "end"):
        assert torch.equal(run(tmp_path / "killed", RULES[rule], tmp_path / f"{name}.ckpt"), whole), name
        assert trace(tmp_path / "killed") == trace(tmp_path / "whole"), name


def estimating() -> Small:
    def scheduled(model: LightningModule) -> Any:
        optimizer = Estimating(model.parameters())
        schedule = LambdaLR(optimizer, lambda step: 1 / (1 + 0.1 * step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    torch.manual_seed(7)
    return Noisy(scheduled)


@pytest.mark.parametrize("rule", ["async", "softsync", "sums", "local"])
def test_so_does_one_whose_steps_change_its_param_groups(tmp_path: Path, rule: str) -> None:
    """Some entries from the fifth step on; of local steps each worker has its own."""
    whole = run(tmp_path / "whole", RULES[rule], make=estimating)
    with pytest.raises(ProcessLost):
        run(tmp_path / "killed", RULES[rule], make=estimating, callbacks=[Interrupts(tmp_path)])
    for name in ("middle", "end"):
        again = run(tmp_path / "killed", RULES[rule], tmp_path / f"{name}.ckpt", make=estimating)
        assert torch.equal(again, whole), name
        assert trace(tmp_path / "killed") == trace(tmp_path / "whole"), name


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("rule", [Async(), Softsync(4)], ids=["async", "softsync"])
def test_so_does_one_with_sparse_tables(tmp_path: Path, rule: Rule) -> None:
    """The rows of the versions that workers compute from are there again, and sparse gradients of a round."""
    arguments = {"rule": rule, "shards": 2, "norms": True}
    whole = run(tmp_path / "whole", arguments, make=Tabled)
    with pytest.raises(ProcessLost):
        run(tmp_path / "killed", arguments, make=Tabled, callbacks=[Interrupts(tmp_path)])
    kept = torch.load(tmp_path / "middle.ckpt", weights_only=True)["async_ps"]["under_way"]["engine"]
    (tables,) = [shard["tables"] for shard in kept["shards"] if shard["tables"] is not None]
    assert len(tables["records"]) >= 1
    assert bool(kept["slots"]) is isinstance(rule, Softsync)
    assert torch.equal(run(tmp_path / "killed", arguments, tmp_path / "middle.ckpt", make=Tabled), whole)
    assert trace(tmp_path / "killed") == trace(tmp_path / "whole")


class Saves(Callback):
    """In the hook of a batch after which a validation is due."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.count += 1
        if self.count in (5, 10, BATCHES, BATCHES + 5):
            trainer.save_checkpoint(self.folder / f"{self.count}.ckpt")


class Draws(Noisy):
    """In validations too."""

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        batch[0] += torch.randn(()) + random.random()
        super().validation_step(batch, batch_idx)


def draws() -> Small:
    torch.manual_seed(7)
    return Draws(scheduled)


def test_a_checkpoint_right_before_a_validation_is_gone_on_with_to_the_last_bit(tmp_path: Path) -> None:
    """After each 5 of all: a batch of each worker. On resume Lightning leaves that validation out: what it would have
    drawn is nobody's."""

    def weights_of(name: str, ckpt_path: Path | None = None, **settings: Any) -> Tensor:
        strategy = AsyncPS(workers=WORKERS, host="virtual", clock=EVERYTHING, buffers="per_worker")
        made = trainer(tmp_path / name, strategy, val_check_interval=1, **settings)
        return fit(made, draws(), ckpt_path=ckpt_path)

    whole = weights_of("whole", callbacks=[Saves(tmp_path)])
    for count in (5, 10, BATCHES, BATCHES + 5):
        assert torch.equal(weights_of(str(count), tmp_path / f"{count}.ckpt"), whole), count
    assert torch.equal(weights_of("never saved"), whole)
    assert torch.equal(weights_of("never validated", limit_val_batches=0), whole)


def test_a_stopped_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    arguments, keep = RULES["async"], LastCheckpoint(tmp_path)
    usual: Any = {"enable_checkpointing": True}
    run(tmp_path, arguments, callbacks=[Stops(), keep], **usual)
    kept = torch.load(keep.path, weights_only=True)
    assert kept["global_step"] <= 5
    assert kept["async_ps"]["under_way"]["claimed"]["left"] == BATCHES - 5
    on = LastCheckpoint(tmp_path / "on")
    again = run(tmp_path, arguments, keep.path, callbacks=[on], **usual)
    assert torch.equal(again, run(tmp_path, arguments, callbacks=[LastCheckpoint(tmp_path / "whole")], **usual))


@pytest.mark.parametrize("change", ["clock", "rule", "weights"])
def test_under_way_is_computed_anew_where_the_run_is_another(tmp_path: Path, change: str) -> None:
    """Every batch that is left is seen once more, and nothing twice."""
    with pytest.raises(ProcessLost):
        run(tmp_path, RULES["async"], callbacks=[Interrupts(tmp_path)])
    clock = replace(EVERYTHING, server_s=0.5) if change == "clock" else EVERYTHING
    arguments = RULES["bounded"] if change == "rule" else RULES["async"]
    path = tmp_path / "middle.ckpt"
    if change == "weights":
        content = torch.load(path, weights_only=True)
        content["state_dict"]["net.0.bias"] += 1
        torch.save(content, path)
    run(tmp_path, arguments, path, clock=clock, callbacks=[Diary(tmp_path)], max_epochs=1)
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


def test_how_large_checkpoints_become_is_said_where_it_matters(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="lightning.pytorch.utilities.rank_zero"):
        announce_kept(Need(parameters=2_700_000, shared=0, gradients=0, snapshot=0), workers=5)
        announce_kept(Need(parameters=2_700_000, shared=0, gradients=0, snapshot=0), workers=64)
        announce_kept(Need(parameters=2_700_000, shared=0, gradients=0, snapshot=0), workers=32, copies=2)
    for said in caplog.messages:
        assert "up to 64 versions of 3 MB (0.17 GB)" in said
    assert len(caplog.messages) == 2
