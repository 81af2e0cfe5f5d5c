"""Optimizers that keep things in awkward places: one worker does what a plain Trainer does, and several train."""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import StepLR

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.local_steps import LocalSGD
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.engine.rules.update_rules import Async, Sync
from scalebook.training.lightning import AsyncPS
from tests.training.engine.custom_optimizers import (
    CountsInGroups,
    Elsewhere,
    Estimating,
    InAttribute,
    LooksAtLoss,
    Modes,
    Nested,
    Wrapping,
)
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.small import fit, trainer, weights

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:The dirpath has changed.*"),
    pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint need to be provided.*"),
]
BATCHES = 12  # an epoch
CLOCK = ClockSettings(gradient_s=0.05)


class Own(Plain):
    """Says when each mode of its optimizer begins, if it has modes; a schedule changes the rate twice an epoch."""

    def __init__(self, kind: Callable[..., Optimizer]) -> None:
        super().__init__(lambda model: self.scheduled(kind(model.parameters())))

    @staticmethod
    def scheduled(optimizer: Optimizer) -> Any:
        return [optimizer], [{"scheduler": StepLR(optimizer, 6, 0.9), "interval": "step"}]

    def _mode(self, name: str) -> None:
        optimizer: Any = self.optimizers()
        if hasattr(optimizer, name):
            getattr(optimizer, name)()

    def on_train_start(self) -> None:
        self._mode("train")

    def on_validation_start(self) -> None:
        self._mode("eval")

    def on_validation_end(self) -> None:
        self._mode("train")


KINDS = [CountsInGroups, Estimating, Nested, Elsewhere, Modes]


def saved(folder: Path, kind: Any, strategy: Any, begin: Path | None = None, **more: Any) -> tuple[Tensor, Any, Path]:
    """Weights, the optimizer in the last checkpoint, and where that lies."""
    folder.mkdir(parents=True, exist_ok=True)
    save = ModelCheckpoint(folder, "last", save_on_train_epoch_end=True, enable_version_counter=False)
    arguments = {"max_epochs": 4 if begin else 2, "enable_checkpointing": True, **more}
    arguments["callbacks"] = [save, *more.get("callbacks", [])]
    model = Own(kind)
    fit(trainer(folder, strategy, **arguments), model, ckpt_path=begin)
    (found,) = torch.load(folder / "last.ckpt", weights_only=True)["optimizer_states"]
    found["state"] = {key: kept for key, kept in found["state"].items() if kept != {}}  # whoever has looked for some
    return weights(model), found, folder / "last.ckpt"


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


@pytest.mark.each_value
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "arguments",
    [{}, {"host": "process"}, {"rule": "sync"}, {"host": "virtual", "clock": CLOCK}],
    ids=["inline", "process", "sync", "virtual"],
)
def test_one_worker_is_a_plain_trainer_to_the_last_bit(kind: Any, arguments: dict[str, Any], tmp_path: Path) -> None:
    """Weights, checkpoint, and both after a resume, from the own checkpoint and from the other's."""
    expected, state, plain = saved(tmp_path / "plain", kind, "auto")
    found, ours, path = saved(tmp_path / "ours", kind, AsyncPS(**arguments))
    assert torch.equal(found, expected)
    assert same(ours, state)
    later, later_state, _ = saved(tmp_path / "plain later", kind, "auto", plain)
    for number, (strategy, begin) in enumerate([(AsyncPS(**arguments), plain), ("auto", path)]):
        again, again_state, _ = saved(tmp_path / f"later {number}", kind, strategy, begin)
        assert torch.equal(again, later)
        assert same(again_state, later_state)


@pytest.mark.each_value
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "arguments",
    [
        {"rule": Async()},
        {"rule": Async(), "host": "process"},
        {"rule": Sync()},
        {"rule": Async(), "host": "virtual", "clock": CLOCK},
        {"rule": Sync(), "local": LocalSGD(3)},
        {"rule": Sync(), "local": LocalSGD(3), "host": "virtual", "clock": CLOCK},
    ],
    ids=["async", "process", "sync", "virtual", "local", "local virtual"],
)
def test_two_workers_train_and_count_together(kind: Any, arguments: dict[str, Any], tmp_path: Path) -> None:
    """Each update is counted once, whoever makes it: no worker's stale copy takes anything back."""
    began = weights(Own(kind))
    strategy = AsyncPS(workers=2, **arguments, limits=Limits(deadline_s=60))
    ended, state, path = saved(tmp_path, kind, strategy)
    assert bool(ended.isfinite().all())
    assert not torch.equal(ended, began)
    updates = strategy.figures.counts().updates
    (group,) = state["param_groups"]
    steps = BATCHES if "local" in arguments else updates
    counted = {CountsInGroups: group.get("k"), Estimating: group.get("seen"), Modes: group.get("k")}
    assert counted.get(kind, steps) == steps
    if kind is Elsewhere:
        assert float(state["state"]["total"]) == steps
    more = AsyncPS(workers=2, **arguments, limits=Limits(deadline_s=60))
    _, again, _ = saved(tmp_path / "again", kind, more, path)
    (group,) = again["param_groups"]
    steps = 2 * BATCHES if "local" in arguments else more.figures.counts().updates
    counted = {CountsInGroups: group.get("k"), Estimating: group.get("seen"), Modes: group.get("k")}
    assert steps > updates or "local" in arguments
    assert counted.get(kind, steps) == steps


class Sets(Callback):
    """Puts the count back, once, in the middle of the first epoch."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == 0 and batch_idx == 6:
            trainer.optimizers[0].param_groups[0]["k"] = 100


def test_who_sets_what_steps_change_is_heard(tmp_path: Path) -> None:
    expected, state, _ = saved(tmp_path / "plain", CountsInGroups, "auto", callbacks=[Sets()])
    found, ours, _ = saved(tmp_path / "ours", CountsInGroups, AsyncPS(), callbacks=[Sets()])
    assert torch.equal(found, expected)
    assert ours["param_groups"][0]["k"] == state["param_groups"][0]["k"] == 100 + 2 * BATCHES - 6


class Norm(Enum):
    """A setting that only its own code can make."""

    AUTO = "auto"


@pytest.mark.thorough
def test_settings_that_are_objects_are_saved_while_it_trains(tmp_path: Path) -> None:
    def kind(parameters: Any) -> Optimizer:
        return SGD([{"params": parameters, "norm": Norm.AUTO}], lr=0.1)

    made = trainer(tmp_path, AsyncPS(), callbacks=[ModelCheckpoint(tmp_path, "last")], enable_checkpointing=True)
    fit(made, Own(kind))
    with torch.serialization.safe_globals([Norm]):
        (state,) = torch.load(tmp_path / "last.ckpt", weights_only=True)["optimizer_states"]
    assert state["param_groups"][0]["norm"] is Norm.AUTO
    with pytest.raises(RuntimeError, match=r"optimizer settings or callback states contain objects"):
        made.save_checkpoint(tmp_path / "after.ckpt")


@pytest.mark.parametrize(
    ("kind", "arguments", "reason"),
    [
        (LooksAtLoss, {}, "LooksAtLoss does not work .* it reads the loss"),
        (Wrapping, {}, "Wrapping does not work .* it wraps another optimizer"),
        (InAttribute, {"workers": 2}, "InAttribute does not work .* a step changes its attribute 'last'"),
        (Estimating, {"shards": 2}, "shards: Estimating keeps state across layers"),
    ],
)
def test_what_cannot_be_followed_is_refused(kind: Any, arguments: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        fit(trainer(tmp_path, AsyncPS(**arguments)), Own(kind))
