"""What AsyncPS cannot do is said by name, with a remedy, before anything is trained."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    EMAWeightAveraging,
    LearningRateFinder,
    ModelPruning,
    StochasticWeightAveraging,
    WeightAveraging,
)
from lightning.pytorch.strategies import Strategy
from torch.nn import Parameter
from torch.optim import SGD

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.update_rules import Softsync, Sync
from scalebook.training.lightning import DDP, AsyncPS
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.small import AtBatch, fit, loader, trainer


class Forked(Callback):
    """Leaves a file when a process other than this one sets up."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.monitor = folder, os.getpid()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert os.getpid() != self.monitor
        (self.folder / "forked").touch()


class RateByEpoch(LearningRateFinder):
    """As Lightning's documentation has it."""

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.lr_find(trainer, pl_module)


@pytest.mark.parametrize(
    ("callback", "reason"),
    [
        (
            StochasticWeightAveraging(0.1),
            "StochasticWeightAveraging changes parameters, or param groups, that all workers share",
        ),
        (WeightAveraging(), "WeightAveraging changes parameters"),
        (EMAWeightAveraging(), "EMAWeightAveraging changes parameters"),
        (ModelPruning("l1_unstructured", amount=0.5), "ModelPruning changes parameters"),
        (BackboneFinetuning(1), "BackboneFinetuning changes parameters, or param groups"),
        (RateByEpoch(), "RateByEpoch is a finder and not Lightning's own: it may search while workers train"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Callback) else "",
)
def test_callbacks(callback: Callback, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"trainer.callbacks: {reason}.*or use another strategy than AsyncPS"):
        fit(trainer(tmp_path, AsyncPS(workers=2), callbacks=[callback, Forked(tmp_path)]), Plain())
    assert not (tmp_path / "forked").exists()


@pytest.mark.parametrize(
    ("arguments", "settings", "reason"),
    [
        ({}, {"sync_batchnorm": True}, "trainer.sync_batchnorm: its workers have no common batch"),
        ({"rule": Sync(backup_workers=2)}, {}, "backup_workers: is 2, which leaves no worker to wait for among 2"),
        (
            {"host": "overlap", "rule": "sync"},
            {},
            "host: is overlap, which has no effect with sync: its workers wait for others anyway",
        ),
        (
            {"damping": "delay_compensation", "rule": Softsync(2)},
            {},
            "damping: corrects single gradients, which softsync averages",
        ),
    ],
)
def test_settings(arguments: dict[str, Any], settings: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        fit(trainer(tmp_path, AsyncPS(workers=2, **arguments), callbacks=[Forked(tmp_path)], **settings), Plain())
    assert not (tmp_path / "forked").exists()


def add_a_group(trainer: Trainer) -> None:
    trainer.optimizers[0].add_param_group({"params": [Parameter(torch.ones(3))]})


def test_a_param_group_added_during_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a param group was added during training"):
        fit(trainer(tmp_path, AsyncPS(workers=2), callbacks=[AtBatch(0, 2, add_a_group)]), Plain())


def test_a_model_that_differs_between_workers(tmp_path: Path) -> None:
    class ByRank(Plain):
        def configure_optimizers(self) -> Any:
            given = [p for p in self.parameters() if self.global_rank == 0 or p.ndim > 1]
            return SGD(given, lr=0.1)

    with pytest.raises(ValueError, match="have created different parameters or optimizers"):
        fit(trainer(tmp_path, AsyncPS(workers=2)), ByRank())


def test_several_training_loaders_of_virtual_workers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data: several training loaders cannot be shared by 2 workers. .*real worke"):
        trainer(tmp_path, AsyncPS(workers=2, host="virtual", clock=ClockSettings(0.05))).fit(
            Plain(), [loader(), loader()], loader()
        )


class StepsItsOwnWay(Plain):
    """Gives its optimizer's step an argument that no server hears of."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        optimizer: Any = self.optimizers()
        optimizer.step(how="slowly")


def test_arguments_of_a_step(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="does not work with a parameter server: its step is called with how, which a server does not"
    ):
        fit(trainer(tmp_path, AsyncPS()), StepsItsOwnWay())


@pytest.mark.parametrize("strategy", [AsyncPS(workers=2), DDP()], ids=["AsyncPS", "DDP"])
def test_a_process_group_of_this_process(strategy: Strategy, tmp_path: Path) -> None:
    """Its threads would not be there in a worker, who would wait for them."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        with pytest.raises(RuntimeError, match=r"has a process group.* Call torch.distributed.destroy_process_group"):
            fit(trainer(tmp_path, strategy, 2 if isinstance(strategy, DDP) else 1))
    finally:
        dist.destroy_process_group()
    made = trainer(tmp_path, AsyncPS(workers=2), max_epochs=1)
    fit(made)
    assert made.global_step == 12
