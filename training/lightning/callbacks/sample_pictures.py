"""Saves images that a generative model has drawn."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from PIL import Image
from torch import Tensor
from typing_extensions import override

from scalebook.training.lightning import ModelParallel
from scalebook.training.tracking import names
from scalebook.training.tracking.logger import upload

DRAWN: Final = 16
LEAST_SIDE: Final = 320
"""The picture's smallest side, pixels; small images are enlarged, each pixel to a square."""


class Pictures(Callback):
    """Worker 0 writes a picture into `folder` and the run's artifacts, when training ends.

    A model with `sample_images(n)`, which returns [n, channels, height, width] in 0..1, is asked for 16 images.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        sample: Any = getattr(pl_module, "sample_images", None)
        split = trainer.strategy if isinstance(trainer.strategy, ModelParallel) else None  # a part for each worker
        if (trainer.is_global_zero or split is not None) and callable(sample):
            with nullcontext(True) if split is None else split.whole_model() as asks:
                images = _drawn(pl_module, sample) if asks else None
            if images is not None and trainer.is_global_zero:
                path = self.folder / names.SAMPLES_PICTURE
                grid(images).save(path)
                upload(trainer, path)


def _drawn(module: LightningModule, sample: Callable[[int], Tensor]) -> Tensor:
    training = module.training
    module.eval()
    with torch.no_grad():
        images = sample(DRAWN)
    module.train(training)
    return images


def grid(images: Tensor) -> Image.Image:
    """Images [n, 1 or 3, height, width] in 0..1 side by side in a square, with a border of one pixel."""
    count, channels, height, width = images.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    sheet = torch.full((channels, rows * (height + 1) + 1, columns * (width + 1) + 1), 0.5)
    for i, image in enumerate(images.detach().float().clamp(0, 1).cpu()):
        top, left = 1 + i // columns * (height + 1), 1 + i % columns * (width + 1)
        sheet[:, top : top + height, left : left + width] = image
    pixels = (sheet * 255).round().to(torch.uint8).permute(1, 2, 0)
    picture = Image.fromarray((pixels[:, :, 0] if channels == 1 else pixels).numpy())
    scale = max(1, math.ceil(LEAST_SIDE / max(picture.size)))
    return picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
