"""One worker refuses what several refuse, in the same words."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    EMAWeightAveraging,
    ModelPruning,
    StochasticWeightAveraging,
    WeightAveraging,
)
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam

from scalebook.training.lightning import AsyncPS
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.small import SAMPLES, Batch, fit, loader, trainer, weights

workers = pytest.mark.parametrize("workers", [1, 2])


@workers
def test_two_optimizers_with_a_parameter_in_common(workers: int, tmp_path: Path) -> None:
    model = Plain(lambda model: [SGD(model.parameters(), lr=0.05), SGD(model.parameters(), lr=0.02)])
    model.automatic_optimization = False
    with pytest.raises(ValueError, match=r"model: two optimizers share a parameter\. Give each parameter to one"):
        fit(trainer(tmp_path, AsyncPS(workers=workers)), model)


@workers
@pytest.mark.parametrize(
    "callback",
    [
        WeightAveraging(),
        EMAWeightAveraging(decay=0.8),
        StochasticWeightAveraging(0.02, swa_epoch_start=1, annealing_epochs=2),
        ModelPruning("l1_unstructured", amount=0.5),
        BackboneFinetuning(1),
    ],
    ids=["average", "ema", "swa", "pruning", "finetuning"],
)
def test_callbacks_that_write_into_parameters_or_add_some(callback: Callback, workers: int, tmp_path: Path) -> None:
    name = type(callback).__name__
    with pytest.raises(ValueError, match=rf"trainer.callbacks: {name} .* Remove {name}, or use a strategy other"):
        fit(trainer(tmp_path, AsyncPS(workers=workers), callbacks=[callback]), Plain())


class Adds(Callback):
    """Adds a param group in the middle of an epoch."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if batch_idx == 4 and len(trainer.optimizers[0].param_groups) == 1:
            added = list(pl_module.net.parameters())[2:]  # type: ignore[union-attr]
            trainer.optimizers[0].add_param_group({"params": added, "lr": 0.1})


@pytest.mark.thorough
@pytest.mark.parametrize("arguments", [{}, {"workers": 2}, {"host": "process"}], ids=str)
def test_a_param_group_that_is_added_while_training(arguments: dict[str, Any], tmp_path: Path) -> None:
    model = Plain(lambda model: Adam(list(model.parameters())[:2], lr=0.02))
    with pytest.raises(ValueError, match=r"a param group was added .* or train with strategy: auto"):
        fit(trainer(tmp_path, AsyncPS(**arguments), callbacks=[Adds()]), model)


def test_clocks_that_a_test_has_replaced_are_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A person's own test may freeze `time`, or count the calls: these are the model's and Lightning's alone."""

    def only_by_others(clock: Callable[[], float]) -> Callable[[], float]:
        def read() -> float:
            assert not sys._getframe(1).f_globals["__name__"].startswith("training.")
            return clock()

        return read

    for name in ("monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, only_by_others(getattr(time, name)))
    fit(trainer(tmp_path, AsyncPS(workers=2, rule="sync", host="process")))


class Quiet(Plain):
    """Logs nothing: Lightning's own `log` cannot be compiled with every torch."""

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec:FutureWarning", "ignore:.*validation_step")
def test_a_compiled_model_trains_as_it_is(tmp_path: Path) -> None:
    """Several workers too may have one; what they compute depends on time."""
    weighed = []
    cases: list[tuple[AsyncPS | str, bool]] = [("auto", False), (AsyncPS(), True), (AsyncPS(workers=2), True)]
    for strategy, compiled in cases:
        torch.manual_seed(7)
        model = Quiet()
        made = trainer(tmp_path, strategy)
        made.fit(torch.compile(model, backend="aot_eager") if compiled else model, loader())  # type: ignore[arg-type]
        weighed.append(weights(model))
    assert torch.equal(weighed[0], weighed[1])
    assert made.global_step == 2 * SAMPLES // 8
