"""What several programs share: a Trainer with the default checkpoint of the best, and what is measured afterwards."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from tests.clients.case import Setting

MONITOR = "val_loss"
Model = TypeVar("Model", bound=LightningModule)


def make_trainer(setting: Setting, callbacks: list[Callback] | None = None, **arguments: Any) -> Trainer:
    """As in a script of a person who does without bars and loggers."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 3}
    return Trainer(default_root_dir=setting.folder, callbacks=callbacks, **{**quiet, **setting.trainer, **arguments})


def best(setting: Setting, monitor: str = MONITOR) -> ModelCheckpoint:
    return ModelCheckpoint(setting.folder / "best", "best", monitor=monitor)


def plainly(model: LightningModule, data: Any, monitor: str = MONITOR, **where: Any) -> float:
    """What a plain Trainer, of this process alone, computes on `data`: a loader or a data module."""
    trainer = Trainer(
        accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False,
    )  # fmt: skip
    (found,) = trainer.validate(model, data, verbose=False, **where)
    return found[monitor]


def saved(setting: Setting, make_model: Callable[[], LightningModule], data: Any, monitor: str = MONITOR) -> float:
    """How far the best checkpoint's loss in a plain Trainer is from the score that the run wrote into it; relative."""
    path = setting.folder / "best" / "best.ckpt"
    callbacks = torch.load(path, weights_only=False)["callbacks"]  # made a moment ago by this program
    (score,) = (
        state["best_model_score"]
        for key, state in callbacks.items()
        if key.startswith("ModelCheckpoint") and f"'monitor': {monitor!r}" in key
    )
    again = plainly(make_model(), data, monitor, ckpt_path=path, weights_only=False)
    return abs(again - float(score)) / max(abs(float(score)), 1e-6)


def seeded(make_model: Callable[[], Model]) -> Model:
    """A model with the same first weights in every way."""
    seed_everything(7, verbose=False)
    return make_model()


def shards(setting: Setting) -> int:
    """How many workers of a split model, of other strategies one, read a part of each batch."""
    devices: int = setting.trainer["devices"]
    tensor: int = getattr(setting.trainer.get("strategy"), "tensor", devices)
    return devices // tensor


def size(model: LightningModule) -> float:
    """All absolute weights together, which tells small differences of any of them."""
    return sum(float(parameter.detach().double().abs().sum()) for parameter in model.parameters())
