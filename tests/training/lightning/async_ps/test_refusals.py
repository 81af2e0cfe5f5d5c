"""What AsyncPS cannot do is said by name, with a remedy, before anything is trained."""

import copy
import os
import warnings
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
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.local_steps import LocalSGD
from scalebook.training.engine.rules.update_rules import Softsync, Sync
from scalebook.training.engine.worker.worker_end import MemoryNeed
from scalebook.training.lightning import DDP, AsyncPS, Peers
from scalebook.training.lightning.async_ps.refusals import announce_memory, warn_of_averages
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.small import AtBatch, data, fit, held_out, loader, trainer


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
            "StochasticWeightAveraging changes parameters or param groups, which all workers share",
        ),
        (WeightAveraging(), "WeightAveraging changes parameters"),
        (EMAWeightAveraging(), "EMAWeightAveraging changes parameters"),
        (ModelPruning("l1_unstructured", amount=0.5), "ModelPruning changes parameters"),
        (BackboneFinetuning(1), "BackboneFinetuning changes parameters or param groups"),
        (RateByEpoch(), "RateByEpoch is a finder that may search while workers train"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Callback) else "",
)
def test_callbacks(callback: Callback, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"trainer.callbacks: {reason}.*or use a strategy other than AsyncPS"):
        fit(trainer(tmp_path, AsyncPS(workers=2), callbacks=[callback, Forked(tmp_path)]), Plain())
    assert not (tmp_path / "forked").exists()


@pytest.mark.parametrize(
    ("arguments", "settings", "reason"),
    [
        ({}, {"sync_batchnorm": True}, "trainer.sync_batchnorm: AsyncPS workers never compute a batch together"),
        (
            {"rule": Sync(backup_workers=2)},
            {},
            "backup_workers: is 2, which would leave none of the 2 workers to wait for",
        ),
        (
            {"host": "overlap", "rule": "sync"},
            {},
            "host: is overlap, which has no effect with sync, because its workers wait for each other anyway",
        ),
        (
            {"damping": "delay_compensation", "rule": Softsync(2)},
            {},
            "damping: corrects single gradients, but softsync averages gradients",
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
        ValueError, match="does not work with a parameter server: its step is called with how, but a server cannot"
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


DECAY = 0.9


class Averaged(Plain):
    """Keeps a moving average of its weights after each batch, in a frozen copy."""

    def __init__(self, copies: bool = True) -> None:
        super().__init__()
        if copies:
            self.average = copy.deepcopy(self.net).requires_grad_(False)

    def on_train_batch_end(self, *_: Any) -> None:
        for average, parameter in zip(self.average.parameters(), self.net.parameters(), strict=True):
            average.lerp_(parameter.detach(), 1 - DECAY)


class Holds(Callback):
    """Has a moving average of torch's, made before training or in a hook."""

    def __init__(self, average: AveragedModel | None = None) -> None:
        self.average = average


class Teacher(Plain):
    """Has a frozen part that is no copy, and an embedding that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = copy.deepcopy(self.net).requires_grad_(False)
        for parameter in self.teacher.parameters():
            parameter.data.add_(1.0)
        self.register_buffer("zeros", torch.zeros(3))


def said_of(folder: Path, strategy: Any, workers: int, model: Plain, *callbacks: Callback) -> list[str]:
    made = trainer(folder, copy.deepcopy(strategy), callbacks=list(callbacks))
    made.strategy.connect(model)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        said = warn_of_averages(made, strategy.arguments.settings(made), workers)
    assert said is bool(heard)
    return [str(one.message) for one in heard]


def checked(strategy: Any, workers: int) -> Any:
    strategy.arguments.server.check(workers)
    return strategy


@pytest.mark.parametrize(
    "strategy",
    [AsyncPS(), AsyncPS("bounded"), AsyncPS(Sync(1)), AsyncPS("sync", local=LocalSGD(2)), Peers()],
    ids=["async", "bounded", "backup worker", "local steps", "peers"],
)
def test_a_moving_average_of_one_worker_s_batches_is_said(strategy: Any, tmp_path: Path) -> None:
    strategy = checked(strategy, 4)
    average = AveragedModel(torch.nn.Linear(2, 2))
    for found, made, callbacks in (
        ("Averaged.average", Averaged(), ()),
        ("Holds.average", Plain(), (Holds(average),)),
    ):
        (text,) = said_of(tmp_path, strategy, 4, made, *callbacks)
        assert text.startswith(f"{found} seems to be a moving average of the weights. Only worker 0's average is kept")
        assert "from 0.99 to 0.961" in text
    assert not said_of(tmp_path, strategy, 4, Teacher(), Holds())
    assert not said_of(tmp_path, checked(strategy, 2), 1, Averaged())


@pytest.mark.filterwarnings("error:.*moving average")
def test_an_average_under_sync_is_that_of_one_process(tmp_path: Path) -> None:
    found = []
    for strategy, batch in (("auto", 16), (AsyncPS("sync", workers=2), 8)):
        model = Averaged()
        trainer(tmp_path, strategy).fit(model, DataLoader(data(), batch), held_out())
        found.append(torch.cat([parameter.flatten() for parameter in model.average.parameters()]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_more_than_the_gpu_has_is_refused_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda of: ((2 if of == device else 0) * 10**9, 80 * 10**9))
    announce_memory(MemoryNeed(1, 1, 1, 0, on_gpu=2 * 10**9), device)
    with pytest.raises(
        MemoryError, match=r"copies of the parameters on cuda:1 take 2\.10 GB, but only 2\.00 GB are free"
    ):
        announce_memory(MemoryNeed(1, 1, 1, 0, on_gpu=2_100_000_000), device)
