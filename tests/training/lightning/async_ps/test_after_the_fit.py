"""What a person finds after `fit`, in the process that called it, is what a plain Trainer would leave."""

import csv
import gc
import os
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.tuner.tuning import Tuner
from torch import Tensor
from torch.nn.functional import cross_entropy
from typing_extensions import override

from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning import DDP, AsyncPS, ModelParallel
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.small import Batch, held_out, loader, trainer, weights


class Notes(Callback):
    """Keeps a list, as people's callbacks do, and the Trainer, which stays in the worker."""

    def __init__(self) -> None:
        self.losses: list[Tensor] = []
        self.trainer: Trainer | None = None

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.trainer = trainer
        if not trainer.sanity_checking:
            self.losses.append(trainer.callback_metrics["val/loss"])

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        raise AssertionError("nothing is loaded: nobody resumes")


class Stops(Plain):
    """Brings its own early stopping, on a value that does not improve."""

    @override
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = cross_entropy(self.net(batch[0]), batch[1])
        self.log("train/loss", loss, prog_bar=True, on_step=True, on_epoch=True, sync_dist=True)
        return loss

    @override
    def configure_callbacks(self) -> list[Callback]:
        return [EarlyStopping("val/mean_index", patience=2)]


@pytest.mark.parametrize("before", [False, True], ids=["in_worker", "before_fit"])
@pytest.mark.parametrize("make", [lambda: AsyncPS(workers=2), DDP], ids=["async", "ddp"])
def test_a_test_after_the_fit_goes_into_the_same_file(
    make: Callable[[], Strategy], before: bool, tmp_path: Path
) -> None:
    """Who logs hyperparameters before the fit creates the file in this process, else a worker does."""
    logger = CSVLogger(tmp_path)
    made = trainer(tmp_path, make(), 2 if make is DDP else 1, max_epochs=1)
    made.logger, made.log_every_n_steps = logger, 1  # type: ignore[attr-defined]  # set by its constructor
    if before:
        logger.log_hyperparams({"width": 16})
    made.fit(Plain(), loader(), held_out())
    made.test(Plain(), held_out(), verbose=False)
    (written,) = tmp_path.rglob("metrics.csv")
    rows = list(csv.DictReader(written.read_text(encoding="utf-8").splitlines()))
    assert {name for row in rows for name, value in row.items() if value} >= {"train/loss", "val/loss", "test/loss"}
    assert written.parent.name == "version_0"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "strategy", [AsyncPS(workers=1), AsyncPS(workers=2, rule="sync"), DDP()], ids=["one", "sync", "ddp"]
)
def test_callbacks_and_metrics_are_those_of_the_worker(strategy: Strategy, tmp_path: Path) -> None:
    best = ModelCheckpoint(tmp_path, "best-{epoch}", monitor="val/loss", save_top_k=2, save_last=True)
    first = ModelCheckpoint(filename="first-{epoch}", monitor="val/mean_index", mode="max")
    notes = Notes()
    made = trainer(
        tmp_path, strategy, 2 if isinstance(strategy, DDP) else 1, max_epochs=9, enable_checkpointing=True,
        callbacks=[best, first, notes],
    )  # fmt: skip
    made.fit(Stops(), loader(), held_out())
    assert len(notes.losses) == 3
    assert notes.trainer is None
    assert best.best_model_score == min(notes.losses)
    assert best.current_score == notes.losses[-1]
    assert sorted(best.best_k_models.values()) == sorted(notes.losses)[:2]
    assert set(best.best_k_models) == {str(path) for path in tmp_path.glob("best-*.ckpt")}
    assert best.kth_value == sorted(notes.losses)[1] == best.best_k_models[best.kth_best_model_path]
    assert best.last_model_path == str(tmp_path / "last.ckpt")
    assert first.best_model_path == str(tmp_path / "checkpoints" / "first-epoch=0.ckpt")
    assert first.best_model_score == 15.5
    stopping = made.early_stopping_callback
    assert isinstance(stopping, EarlyStopping)
    assert (stopping.stopped_epoch, stopping.wait_count, stopping.best_score.item()) == (2, 2, 15.5)
    assert made.callback_metrics.keys() == {*made.logged_metrics, "train/loss"}
    assert made.logged_metrics.keys() == {"train/loss_step", "train/loss_epoch", "val/loss", "val/mean_index"}
    assert made.logged_metrics["val/loss"] == notes.losses[-1]
    assert made.progress_bar_metrics == {
        name: made.logged_metrics[name].item() for name in ("train/loss_step", "train/loss_epoch")
    }


class Fails(Callback):
    """Raises in the second batch, and in each validation after that."""

    def __init__(self) -> None:
        self.batches, self.errors = list[int](), list[str]()

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.batches.append(batch_idx)
        if batch_idx == 1:
            raise ZeroDivisionError("in training")

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.batches:
            raise ZeroDivisionError("in validation")

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.errors.append(str(exception))


@pytest.mark.parametrize(
    "strategy",
    ["auto", AsyncPS(workers=1), AsyncPS(workers=2), DDP(), ModelParallel()],
    ids=["plain", "one", "two", "ddp", "shard"],
)
def test_callbacks_know_of_an_exception_once(strategy: Any, tmp_path: Path) -> None:
    """They are told where they have seen what happened, and the caller's are as they were then, for what comes next."""
    fails, limits = Fails(), {"num_sanity_val_steps": 0, "limit_train_batches": 8}
    devices = 2 if isinstance(strategy, DDP | ModelParallel) else 1
    made = trainer(tmp_path, strategy, devices, callbacks=[fails], **limits)
    with pytest.raises(ZeroDivisionError, match="in training"):
        made.fit(Plain(), loader(), held_out())
    assert (fails.batches, fails.errors) == ([0, 1], ["in training"])
    with pytest.raises(ZeroDivisionError, match="in validation"):
        made.validate(Plain(), held_out())
    assert fails.errors == ["in training", "in validation"]


def test_callbacks_are_there_after_a_tuner(tmp_path: Path) -> None:
    """It ends its fit by an exception that Lightning takes for an end."""
    fails = Fails()
    made = trainer(tmp_path, DDP(), 2, callbacks=[fails], num_sanity_val_steps=0)
    Tuner(made).lr_find(Tuned(), loader(), held_out(), num_training=1)
    assert made.callbacks == [fails]  # type: ignore[attr-defined]  # made by Lightning's connector


class Tuned(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.lr = 0.1


class Unreadable(Enum):
    """As a tensor on a GPU that an exception has left unusable."""

    ONE = 1

    @override
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("it cannot be read")


def test_an_exception_is_told_whatever_the_callbacks_hold(tmp_path: Path) -> None:
    fails: Any = Fails()
    fails.value = Unreadable.ONE
    with pytest.raises(ZeroDivisionError, match="in training") as caught:
        trainer(tmp_path, DDP(), 2, callbacks=[fails], num_sanity_val_steps=0).fit(Plain(), loader(), held_out())
    notes = ["The callbacks' values could not be read in the worker: RuntimeError: it cannot be read"]
    assert caught.value.__notes__ == notes
    assert fails.batches == []


@pytest.mark.parametrize("strategy", [AsyncPS, DDP])
def test_no_file_stays_open(strategy: type[Strategy], tmp_path: Path) -> None:
    """Of Trainers that are not collected yet, as they are in cycles."""

    def fit() -> set[str]:
        made = trainer(tmp_path, strategy(), max_epochs=1, limit_train_batches=1, limit_val_batches=1)
        made.fit(Plain(), loader(), held_out())
        return set(os.listdir("/proc/self/fd"))

    gc.collect()
    gc.disable()
    try:
        assert [len(fit()) for _ in range(4)] == [len(fit())] * 4
    finally:
        gc.enable()


class Silent(Plain):
    """Meets nobody in training."""

    @override
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])


@pytest.mark.parametrize("rule", ["async", "bounded", "sync"])
def test_a_worker_without_batches_ends_with_the_run(rule: Any, tmp_path: Path) -> None:
    """An epoch of one batch, and epochs without an end: the other worker has no push that would tell it."""
    made = trainer(tmp_path, AsyncPS(rule, workers=2, limits=Limits(deadline_s=60)), max_epochs=-1, max_steps=5)
    made.fit(Silent(), loader(samples=8), held_out())
    assert made.global_step == 5


@pytest.mark.thorough
def test_a_module_that_is_compiled_as_a_whole(tmp_path: Path) -> None:
    """As Lightning takes it; without `self.log` in training, which torch cannot trace under any strategy."""
    torch.compiler.reset()
    weights = []
    for whole in (False, True):
        module: Any = Silent()
        given: Any = torch.compile(module, backend="eager") if whole else module
        made = trainer(tmp_path, AsyncPS("sync", workers=2), max_epochs=1, limit_train_batches=2)
        made.fit(given, loader(), held_out())
        weights.append(module.net[0].weight.detach())
    assert torch.equal(*weights)


class Sees(Callback):
    """Keeps the weights that it sees."""

    def __init__(self) -> None:
        self.seen = torch.empty(0)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.seen = weights(pl_module).clone()


class Slow(Silent):
    """In worker 1, which pushes when worker 0 has none left."""

    @override
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        if self.trainer.global_rank == 1:
            time.sleep(0.05)
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("validates", [False, True])
def test_the_last_epoch_ends_with_the_final_weights(validates: bool, tmp_path: Path) -> None:
    sees, module = Sees(), Slow()
    made = trainer(tmp_path, AsyncPS(workers=2), limit_val_batches=int(validates), callbacks=[sees])
    made.fit(module, loader(samples=40), held_out())
    assert torch.equal(sees.seen, weights(module))
