"""What only one worker may do is what a plain Trainer does, bit for bit; several are refused it by name."""

import copy
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    EMAWeightAveraging,
    ModelCheckpoint,
    ModelPruning,
    StochasticWeightAveraging,
    WeightAveraging,
)
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parameter import Parameter
from torch.optim import SGD, Adam, Optimizer

from scalebook.training.strategies import AsyncPS
from tests.training.strategies.contract.models import Plain
from tests.training.strategies.small import SAMPLES, Batch, fit, held_out, loader, make_sgd, trainer, weights

Pair = Callable[["Twice"], list[Optimizer]]


class Twice(Plain):
    """Two optimizers that have parameters in common, stepped by hand one after the other."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(lambda _: pair(self))
        self.automatic_optimization = False

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        optimizers: Any = self.optimizers()
        for number, optimizer in enumerate(optimizers):
            if batch_idx % 3 or not number:  # not always in turn
                optimizer.zero_grad()
                loss = cross_entropy(self.net(batch[0]), batch[1])
                self.manual_backward(loss)
                optimizer.step()
        return loss


def equal_sgd(model: Twice) -> list[Optimizer]:
    return [SGD(model.parameters(), lr=0.05), SGD(model.parameters(), lr=0.02, momentum=0.9)]


def equal_adam(model: Twice) -> list[Optimizer]:
    return [Adam(model.parameters(), lr=0.01), SGD(model.parameters(), lr=0.05)]


def overlapping(model: Twice) -> list[Optimizer]:
    parameters: list[Parameter] = list(model.parameters())
    return [Adam(parameters[:3], lr=0.01), SGD(parameters[1:], lr=0.05, momentum=0.5, nesterov=True)]


PAIRS = pytest.mark.parametrize("pair", [equal_sgd, equal_adam, overlapping], ids=lambda pair: pair.__name__)


def same(folder: Path, make: Callable[[], Plain], strategy: AsyncPS | None = None, **settings: Any) -> None:
    """One worker ends with the weights and metrics of a plain Trainer."""
    expected, found = make(), make()
    plain = trainer(folder, "auto", **copy.deepcopy(settings))
    fit(plain, expected)
    one = trainer(folder, strategy or AsyncPS(), **settings)
    fit(one, found)
    wanted = expected.state_dict()
    assert found.state_dict().keys() == wanted.keys()
    assert [name for name, value in found.state_dict().items() if not torch.equal(value, wanted[name])] == []
    assert one.callback_metrics == plain.callback_metrics
    assert one.global_step == plain.global_step


@pytest.mark.each_once
@PAIRS
@pytest.mark.parametrize("arguments", [{}, {"shards": 2, "host": "process"}], ids=["inline", "process"])
def test_two_optimizers_may_have_the_same_parameters(pair: Pair, arguments: dict[str, Any], tmp_path: Path) -> None:
    same(tmp_path, lambda: Twice(pair), AsyncPS(**arguments))


@pytest.mark.parametrize("arguments", [{"workers": 2}, {"trace": True}], ids=str)
def test_otherwise_they_are_refused(arguments: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model: two optimizers share a parameter.*set workers to 1, without"):
        fit(trainer(tmp_path, AsyncPS(**arguments)), Twice(equal_sgd))


class Normalised(Plain):
    """With running statistics, which are to be of the weights that are averaged."""

    def __init__(self, optimizer: Callable[[LightningModule], Any] = make_sgd) -> None:
        super().__init__(optimizer)
        self.net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.each_once
@pytest.mark.parametrize("make", [Plain, Normalised])
@pytest.mark.parametrize(
    "callback",
    [
        WeightAveraging(),
        EMAWeightAveraging(decay=0.8),
        StochasticWeightAveraging(0.02, swa_epoch_start=1, annealing_epochs=2),
        ModelPruning("l1_unstructured", amount=0.5, use_lottery_ticket_hypothesis=False),
        ModelPruning("l1_unstructured", amount=0.5, apply_pruning=lambda epoch: epoch == 1),
    ],
    ids=["average", "ema", "swa", "pruning", "lottery"],
)
def test_callbacks_that_write_into_parameters(callback: Callback, make: Callable[[], Plain], tmp_path: Path) -> None:
    same(tmp_path, make, callbacks=[callback], max_epochs=3)


class Backbone(Plain):
    """A backbone that is frozen at first, and a head; the optimizer has what is not frozen."""

    def __init__(self, kind: Callable[..., Optimizer] = Adam) -> None:
        super().__init__(lambda model: kind([p for p in model.parameters() if p.requires_grad], lr=0.02))
        self.backbone, self.head = nn.Sequential(self.net[0], self.net[1]), self.net[2]


KINDS = [Adam, partial(SGD, momentum=0.9), SGD]


@pytest.mark.each_once
@pytest.mark.parametrize("kind", KINDS, ids=["adam", "momentum", "sgd"])
@pytest.mark.parametrize("arguments", [{}, {"rule": "sync"}, {"shards": 2}], ids=str)
def test_a_backbone_is_trained_later(kind: Any, arguments: dict[str, Any], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"callbacks": [BackboneFinetuning(1, backbone_initial_ratio_lr=0.5)], "max_epochs": 3}
    same(tmp_path, lambda: Backbone(kind), AsyncPS(**arguments), **settings)


class Adds(Callback):
    """Adds a param group in the middle of an epoch."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if batch_idx == 4 and len(trainer.optimizers[0].param_groups) == 1:
            added = list(pl_module.net.parameters())[2:]  # type: ignore[union-attr]
            trainer.optimizers[0].add_param_group({"params": added, "lr": 0.1})


def first_layer() -> Plain:
    return Plain(lambda model: Adam(list(model.parameters())[:2], lr=0.02))


def test_a_param_group_may_be_added(tmp_path: Path) -> None:
    same(tmp_path, first_layer, callbacks=[Adds()])


@pytest.mark.parametrize("arguments", [{"workers": 2}, {"host": "process"}], ids=str)
def test_otherwise_it_is_refused(arguments: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"BackboneFinetuning adds param groups .* Set workers to 1 and host to inline"
    ):
        fit(trainer(tmp_path, AsyncPS(**arguments), callbacks=[BackboneFinetuning(1)]), Backbone())
    with pytest.raises(ValueError, match=r"a param group was added .* train with workers: 1 and host: inline"):
        fit(trainer(tmp_path, AsyncPS(**arguments), callbacks=[Adds()]), first_layer())


@pytest.mark.parametrize("arguments", [{"workers": 2}, {"trace": True}], ids=str)
def test_otherwise_their_remedy_is_one_worker(arguments: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"trainer.callbacks: EMAWeightAveraging writes into .* Set workers to 1, without"
    ):
        fit(trainer(tmp_path, AsyncPS(**arguments), callbacks=[EMAWeightAveraging()]), Plain())


class CountsBatches(Callback):
    """What Lightning knows of an epoch's length when an epoch has been made longer and shorter again."""

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert trainer.num_training_batches == SAMPLES // 8


def test_averaged_weights_and_accumulated_gradients(tmp_path: Path) -> None:
    """In the epoch that only renews running statistics nothing is learned, with momentum too."""
    swa = StochasticWeightAveraging(0.02, swa_epoch_start=1)
    settings: dict[str, Any] = {"callbacks": [swa, CountsBatches()], "max_epochs": 3, "accumulate_grad_batches": 5}
    same(tmp_path, partial(Normalised, lambda model: Adam(model.parameters(), lr=0.02)), **settings)


def test_pruned_weights_come_back_whole(tmp_path: Path) -> None:
    """The worker ends with weights and masks; the model of whoever asked has neither."""
    pruning = ModelPruning("l1_unstructured", amount=0.5, make_pruning_permanent=False)
    found = Plain()
    fit(trainer(tmp_path, AsyncPS(), callbacks=[pruning], max_epochs=1), found)
    kept = torch.cat([value.flatten() for value in found.state_dict().values()])
    assert (kept == 0).sum() == round(kept.numel() / 2)


def resumed(folder: Path, make: Callable[[], Plain], strategy: Callable[[], Any], *callbacks: Callback) -> Plain:
    """Three epochs in two fits; the first one writes a checkpoint in its last epoch."""
    settings: dict[str, Any] = {"enable_checkpointing": True}

    def fitted(epochs: int, model: Plain, **arguments: Any) -> Plain:
        saving = ModelCheckpoint(dirpath=folder, filename="{epoch}", save_top_k=-1)
        settings["callbacks"] = [*copy.deepcopy(callbacks), saving]
        trainer(folder, strategy(), max_epochs=epochs, **settings).fit(model, loader(), held_out(), **arguments)
        return model

    fitted(2, make())
    return fitted(3, make(), ckpt_path=folder / "epoch=1.ckpt")


@pytest.mark.parametrize(
    ("make", "callbacks"),
    [
        (lambda: Twice(overlapping), []),
        (Plain, [EMAWeightAveraging(decay=0.8)]),
        (Backbone, [BackboneFinetuning(1)]),
        (Normalised, [StochasticWeightAveraging(0.02, swa_epoch_start=1)]),
    ],
    ids=["two", "ema", "backbone", "swa"],
)
def test_they_go_on_from_a_checkpoint(make: Callable[[], Plain], callbacks: list[Callback], tmp_path: Path) -> None:
    expected = resumed(tmp_path / "plain", make, lambda: "auto", *callbacks)
    found = resumed(tmp_path / "one", make, AsyncPS, *callbacks)
    torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=0, atol=0)


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
