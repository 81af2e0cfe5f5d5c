"""diffusers: a small UNet learns to take noise away; a callback averages its weights, and the average is used."""

from typing import Any

import torch
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.nn.functional import mse_loss

from tests.clients.case import Setting
from tests.clients.cases.data import loader
from tests.clients.fitting import make_trainer, plainly, seeded


def _pictures(number: int, seed: int) -> Tensor:
    """A bright row or column in each: (number, 1, 8, 8)."""
    pictures = torch.zeros(number, 1, 8, 8)
    places = torch.randint(8, (number,), generator=torch.Generator().manual_seed(seed))
    for index, place in enumerate(places):
        pictures[index, 0, place if index % 2 else slice(None), slice(None) if index % 2 else place] = 1.0
    return pictures


class Diffusion(LightningModule):
    """Ho et al. 2020; validated with noise that is always the same."""

    def __init__(self) -> None:
        super().__init__()
        self.net = UNet2DModel(
            sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16),
            norm_num_groups=4, down_block_types=("DownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "UpBlock2D"),
        )  # fmt: skip
        self.scheduler = DDPMScheduler(num_train_timesteps=50)

    def loss(self, images: Tensor, draws: torch.Generator | None = None) -> Tensor:
        noise = torch.randn(images.shape, generator=draws)
        times = torch.randint(50, (len(images),), generator=draws)
        noisy = self.scheduler.add_noise(images, noise, times)
        return mse_loss(self.net(noisy, times).sample, noise)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss = self.loss(batch[0])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch[0], torch.Generator().manual_seed(batch_idx)), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=5e-3)
        steps = int(self.trainer.estimated_stepping_batches)
        return [optimizer], [{"scheduler": get_cosine_schedule_with_warmup(optimizer, 10, steps), "interval": "step"}]


class Average(Callback):
    """diffusers' average, of each batch's weights; in its place while validating, and left in the model at the end."""

    def on_fit_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._average = EMAModel(pl_module.net.parameters(), decay=0.95)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self._average.step(pl_module.net.parameters())

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._average.store(pl_module.net.parameters())
        self._average.copy_to(pl_module.net.parameters())

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._average.restore(pl_module.net.parameters())

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._average.copy_to(pl_module.net.parameters())


def diffusion(setting: Setting) -> dict[str, float]:
    """`loss`: of the averaged weights, which the model has after `fit`."""
    held_out = loader(_pictures(32, 2))
    model = seeded(Diffusion)
    make_trainer(setting, [Average()]).fit(model, loader(_pictures(248, 1), shuffle=True), held_out)
    return {"loss": plainly(model, held_out)}
