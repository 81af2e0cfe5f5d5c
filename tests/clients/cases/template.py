"""As in templates for Hydra: everything is instantiated from a config, the network is injected, metrics are objects."""

from typing import Any

import hydra
import torch
from lightning.pytorch import LightningDataModule, LightningModule, seed_everything
from omegaconf import OmegaConf
from torch import Tensor
from torchmetrics import MaxMetric, MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from tests.clients.case import Setting
from tests.clients.cases.data import held_out, training
from tests.clients.fitting import saved

CONFIG = """
data: {_target_: tests.clients.cases.template.Points}
model:
  _target_: tests.clients.cases.template.Classifier
  optimizer: {_target_: torch.optim.Adam, _partial_: true, lr: 0.003}
  scheduler: {_target_: torch.optim.lr_scheduler.ReduceLROnPlateau, _partial_: true, mode: min, patience: 10}
  net: {_target_: tests.clients.cases.template.make_net, hidden: 32}
callbacks:
  - {_target_: lightning.pytorch.callbacks.ModelCheckpoint, monitor: val/acc, mode: max, save_last: true,
     dirpath: "${folder}/best", filename: best, auto_insert_metric_name: false}
  - {_target_: lightning.pytorch.callbacks.EarlyStopping, monitor: val/acc, mode: max, patience: 100}
  - {_target_: lightning.pytorch.callbacks.RichModelSummary, max_depth: -1}
  - {_target_: lightning.pytorch.callbacks.RichProgressBar}
logger: {_target_: lightning.pytorch.loggers.CSVLogger, save_dir: "${folder}/csv"}
trainer:
  _target_: lightning.pytorch.Trainer
  default_root_dir: ${folder}
  min_epochs: 1
  max_epochs: 3
  check_val_every_n_epoch: 1
  deterministic: false
"""


class Points(LightningDataModule):
    """Data of a module, as the templates have them."""

    def train_dataloader(self) -> Any:
        return training()

    def val_dataloader(self) -> Any:
        return held_out()

    def test_dataloader(self) -> Any:
        return held_out()


def make_net(hidden: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(8, hidden), torch.nn.BatchNorm1d(hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 4)
    )


class Classifier(LightningModule):
    """Network, optimizer and scheduler are given; metrics of training are logged by the epoch."""

    def __init__(self, net: torch.nn.Module, optimizer: Any, scheduler: Any) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False, ignore=["net"])
        self.net = net
        self.criterion = torch.nn.CrossEntropyLoss()
        self.train_acc, self.val_acc, self.test_acc = (MulticlassAccuracy(4) for _ in range(3))
        self.train_loss, self.val_loss, self.test_loss = MeanMetric(), MeanMetric(), MeanMetric()
        self.val_acc_best = MaxMetric()

    def on_train_start(self) -> None:
        self.val_loss.reset()
        self.val_acc.reset()
        self.val_acc_best.reset()

    def _step(self, batch: list[Tensor], part: str, **how: bool) -> Tensor:
        logits = self.net(batch[0])
        loss: Tensor = self.criterion(logits, batch[1])
        mean, accuracy = getattr(self, f"{part}_loss"), getattr(self, f"{part}_acc")
        mean(loss)
        accuracy(logits.argmax(1), batch[1])
        self.log(f"{part}/loss", mean, on_step=False, on_epoch=True, prog_bar=True)
        self.log(f"{part}/acc", accuracy, on_step=False, on_epoch=True, prog_bar=True)
        return loss

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self._step(batch, "train")

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self._step(batch, "val")

    def on_validation_epoch_end(self) -> None:
        self.val_acc_best(self.val_acc.compute())
        self.log("val/acc_best", self.val_acc_best.compute(), sync_dist=True, prog_bar=True)

    def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self._step(batch, "test")

    def configure_optimizers(self) -> Any:
        optimizer = self.hparams["optimizer"](params=self.parameters())
        scheduler = self.hparams["scheduler"](optimizer=optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val/loss"}}


def experiment(setting: Setting) -> dict[str, float]:
    """Train, then test the best checkpoint, with one Trainer."""
    config = OmegaConf.create(CONFIG)
    config.folder = str(setting.folder)
    seed_everything(12345, verbose=False)
    made = hydra.utils.instantiate
    model, data = made(config.model), made(config.data)
    callbacks = [made(one) for one in config.callbacks]
    trainer = made(config.trainer, callbacks=callbacks, logger=made(config.logger), **setting.trainer)
    trainer.fit(model, data)
    trainer.test(model, data, ckpt_path=callbacks[0].best_model_path or None, weights_only=False)
    accuracy = float(trainer.callback_metrics["test/acc"])
    return {"accuracy": accuracy, "saved": saved(setting, lambda: made(config.model), data, "val/acc")}
