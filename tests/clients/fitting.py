"""What several programs share: a Trainer with the default checkpoint of the best, and what is measured afterwards."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor

from tests.clients.case import Setting

MONITOR = "val_loss"
BEST = Path("best") / "best.ckpt"
"""In a run's folder."""
Model = TypeVar("Model", bound=LightningModule)


def make_trainer(setting: Setting, callbacks: list[Callback] | None = None, **arguments: Any) -> Trainer:
    """As in a script of a person who does without bars and loggers."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 3}
    return Trainer(default_root_dir=setting.folder, callbacks=callbacks, **{**quiet, **setting.trainer, **arguments})


def best(setting: Setting, monitor: str = MONITOR) -> ModelCheckpoint:
    return ModelCheckpoint(setting.folder / BEST.parent, BEST.stem, monitor=monitor)


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
    path = setting.folder / BEST
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


class Simple(LightningModule):
    """A model that is its `loss`, the mean over a batch's samples."""

    rate = 0.05

    def loss(self, batch: Any) -> Tensor:
        raise NotImplementedError

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log(MONITOR, self.loss(batch), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), self.rate, momentum=0.9)


def perceptron() -> torch.nn.Module:
    """For the clusters of `cases.data`."""
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def trained(
    setting: Setting, make_model: Callable[[], Model], training: Any, validation: Any,
    callbacks: Sequence[Callback] = (), **arguments: Any,
) -> tuple[Model, dict[str, float]]:  # fmt: skip
    """The model, and what is compared: its loss in a plain Trainer, its weights, its best checkpoint."""
    model = seeded(make_model)
    make_trainer(setting, [best(setting), *callbacks], **arguments).fit(model, training, validation)
    found = {"loss": plainly(model, validation), "weights": size(model)}
    return model, {**found, "saved": saved(setting, make_model, validation)}


def parts(setting: Setting) -> int:
    """The number of processes that divide one process's batch among themselves; a tensor group reads one part."""
    devices: int = setting.trainer["devices"]
    tensor: int = getattr(setting.trainer.get("strategy"), "tensor", 1)
    return devices // tensor


def size(model: LightningModule) -> float:
    """All absolute weights together, which tells small differences of any of them."""
    return sum(float(parameter.detach().double().abs().sum()) for parameter in model.parameters())
