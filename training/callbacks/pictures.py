"""What a run leaves to look at: images that the model has drawn, and the histogram of staleness."""

import json
import math
from pathlib import Path
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from PIL import Image
from torch import Tensor
from typing_extensions import override

from training.callbacks.measured import Measured
from training.ps.measures import StalenessHistogram
from training.tracking import names
from training.tracking.logger import RunLogger

DRAWN: Final = 16
LEAST_SIDE: Final = 320
"""Pixels of the whole picture; small images are enlarged, each pixel a square."""


class Pictures(Callback):
    """Worker 0 puts pictures and `staleness.json` into `folder` and into the run's artifacts, when training ends.

    A model with `sample_images(n)`, which returns [n, channels, height, width] in 0..1, is asked for 16 images.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        sample: Any = getattr(pl_module, "sample_images", None)
        if trainer.is_global_zero and callable(sample):
            training = pl_module.training
            pl_module.eval()
            with torch.no_grad():
                images = sample(DRAWN)
            pl_module.train(training)
            path = self.folder / names.SAMPLES_PICTURE
            grid(images).save(path)
            _upload(trainer, path)

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero or not isinstance(trainer.strategy, Measured):
            return
        histogram = trainer.strategy.staleness()
        if histogram is None or not histogram.total:
            return
        path = self.folder / names.STALENESS_JSON
        path.write_text(json.dumps({"counts": histogram.counts.tolist()}), encoding="utf-8")
        picture = self.folder / names.STALENESS_PICTURE
        draw_staleness(histogram, picture)
        _upload(trainer, path)
        _upload(trainer, picture)


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


def draw_staleness(histogram: StalenessHistogram, path: Path) -> None:
    """A bar for each staleness that occurred, stacked by worker, as PNG."""
    from matplotlib.figure import Figure  # 0.4 s, and only runs with a parameter server need it

    counts = histogram.counts[:, : histogram.max() + 1]
    figure = Figure(figsize=(6.4, 3.6), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    below = torch.zeros(counts.shape[1])
    for worker, row in enumerate(counts):
        axes.bar(range(len(row)), row.tolist(), bottom=below.tolist(), label=f"worker {worker}")
        below = below + row
    axes.set_xlabel("staleness (updates by others between pull and push)")
    axes.set_ylabel("updates")
    axes.set_title(f"mean {histogram.mean():.2f}, 95 % at most {histogram.quantile(0.95)}")
    axes.spines[["top", "right"]].set_visible(False)
    if len(counts) <= 12:
        axes.legend(frameon=False)
    figure.savefig(path)


def _upload(trainer: Trainer, path: Path) -> None:
    for logger in trainer.loggers:
        if isinstance(logger, RunLogger):
            logger.log_artifact(path)
