"""MONAI: a network, a loss, a metric and transforms, in a module of one's own."""

from typing import Any

import torch
from lightning.pytorch import LightningModule
from monai.data import DataLoader, Dataset, decollate_batch
from monai.losses import DiceLoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import AsDiscrete, Compose, EnsureTyped, RandFlipd, ScaleIntensityd

from tests.clients.case import Setting
from tests.clients.fitting import best, make_trainer, plainly, saved, seeded


def _discs(number: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Discs in noise, 16 x 16, and where they are."""
    draws = torch.Generator().manual_seed(seed)
    places = torch.arange(16.0)
    found = []
    for _ in range(number):
        row, column = 4 + 8 * torch.rand(2, generator=draws)
        disc = ((places[:, None] - row) ** 2 + (places[None] - column) ** 2 < 12).float()[None]
        found.append({"image": disc + 0.3 * torch.randn(1, 16, 16, generator=draws), "label": disc})
    return found


class Segmenter(LightningModule):
    """As in MONAI's tutorial for Lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.net = UNet(2, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,), norm="BATCH")
        self.loss_function = DiceLoss(to_onehot_y=True, softmax=True)
        self.to_label, self.to_prediction = AsDiscrete(to_onehot=2), AsDiscrete(argmax=True, to_onehot=2)
        self.dice = DiceMetric(include_background=False, reduction="mean")

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> dict[str, Any]:
        loss = self.loss_function(self.net(batch["image"]), batch["label"])
        return {"loss": loss, "log": {"train_loss": loss.item()}}

    def validation_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> None:
        made = self.net(batch["image"])
        predictions = [self.to_prediction(one) for one in decollate_batch(made)]
        self.dice(y_pred=predictions, y=[self.to_label(one) for one in decollate_batch(batch["label"])])
        self.log("val_loss", self.loss_function(made, batch["label"]), sync_dist=True, batch_size=len(made))

    def on_validation_epoch_end(self) -> None:
        self.log("val_dice", self.dice.aggregate().item(), sync_dist=True)
        self.dice.reset()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def segmenter(setting: Setting) -> dict[str, float]:
    keys = ["image", "label"]
    augmented = Compose([ScaleIntensityd("image"), RandFlipd(keys, prob=0.5), EnsureTyped(keys)])
    plain = Compose([ScaleIntensityd("image"), EnsureTyped(keys)])
    held_out = DataLoader(Dataset(_discs(16, 2), plain), batch_size=4)
    model = seeded(Segmenter)
    make_trainer(setting, [best(setting)]).fit(
        model, DataLoader(Dataset(_discs(124, 1), augmented), batch_size=4, shuffle=True), held_out
    )
    dice = plainly(model, held_out, "val_dice")
    return {"dice": dice, "saved": saved(setting, Segmenter, held_out)}
