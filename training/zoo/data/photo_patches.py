"""Patches of the two photographs that come with scikit-learn: real images without a download."""

import importlib.util
from pathlib import Path
from typing import Final

import numpy as np
import torch
from jsonargparse.typing import NonNegativeInt, OpenUnitInterval, PositiveFloat, PositiveInt
from PIL import Image
from typing_extensions import override

from scalebook.training.base import ConfigError, extras
from scalebook.training.zoo.data.module import DataError, ImageDataModule, ImageSpec, LabelledImages, Part

PHOTOGRAPHS: Final = ("china.jpg", "flower.jpg")
"""Their places in this list are the labels."""
SIDE: Final = 16
STRIDE: Final = 8
"""Pixels between two training patches; validation patches do not overlap."""


class PhotoPatches(ImageDataModule):
    """Patches of two photographs from scikit-learn, 16 x 16 pixels of 16 grey levels.

    A temple in China and a flower, 640 x 427 pixels each (`sklearn.datasets.load_sample_images`); the label says which.
    The left part of each photograph is for training and the right part for validation, and no patch overlaps both. By
    default, there are 6,136 training patches, one every 8 pixels, and 520 validation patches, side by side.

    Args:
        batch_size: Images per batch of one worker.
        limit: Train on only this many patches, the first ones in shuffled order. Default: all.
        val_fraction: Share of each photograph's width held out for validation, on the right.
        split_seed: Seed of the order of the patches, independent of the run's seed.
        normalize: Shift and scale the pixels to mean 0 and standard deviation 1. Not for a PixelCNN.
        skew: How much labels differ between workers: alpha of a Dirichlet distribution, from which each worker draws
            its shares of the labels. With 0.1, a worker has one or two labels; with 100, all workers have nearly the
            same shares. Default: no difference. Each worker keeps its own samples, so all workers wait for the slowest
            one at the end.
    """

    needs = ("sklearn",)
    spec = ImageSpec(channels=1, height=SIDE, width=SIDE, levels=16, classes=len(PHOTOGRAPHS))

    def __init__(
        self,
        batch_size: PositiveInt = 32,
        limit: PositiveInt | None = None,
        val_fraction: OpenUnitInterval = 0.25,
        split_seed: NonNegativeInt = 0,
        normalize: bool = False,
        skew: PositiveFloat | None = None,
    ) -> None:
        super().__init__(batch_size, limit, val_fraction, split_seed, normalize, skew)

    @override
    def read(self, part: Part) -> LabelledImages:
        """All patches, those that train and those that validate."""
        return _joined(self.split())

    @override
    def split(self) -> tuple[LabelledImages, LabelledImages]:
        train, val = [], []
        for label, name in enumerate(PHOTOGRAPHS):
            levels = grey_levels(photographs_folder() / name)
            border = round(levels.shape[1] * (1 - self.val_fraction))
            if min(border, levels.shape[1] - border) < SIDE:
                what = f"is {self.val_fraction}, which makes one part of a photograph narrower than {SIDE} pixels"
                raise ConfigError(
                    "data.init_args.val_fraction", what, "Use a fraction from 0.03 to 0.97, such as 0.25."
                )
            train.append(_labelled(patches(levels[:, :border], STRIDE), label))
            val.append(_labelled(patches(levels[:, border:], SIDE), label))
        return self._mixed(_joined(train)), self._mixed(_joined(val))

    def _mixed(self, ordered: LabelledImages) -> LabelledImages:
        """So that the first few are of both photographs, and of all places in them."""
        order = torch.from_numpy(np.random.RandomState(self.split_seed).permutation(len(ordered.labels)))
        return LabelledImages(ordered.pixels[order], ordered.labels[order])


def grey_levels(path: Path) -> torch.Tensor:
    """A photograph as uint8 [height, width] of levels 0 to 15: sixteenths of its luma (ITU-R 601). Raises DataError."""
    try:
        with Image.open(path) as image:
            luma = np.asarray(image.convert("L"))
    except (OSError, SyntaxError) as error:
        raise DataError(f"Cannot read the photograph {path} ({error}). Reinstall scikit-learn.") from error
    return torch.from_numpy(luma // 16)


def patches(levels: torch.Tensor, stride: int) -> torch.Tensor:
    """Every whole patch of an image [height, width], `stride` pixels apart, row by row: [patches, 1, SIDE, SIDE]."""
    return levels.unfold(0, SIDE, stride).unfold(1, SIDE, stride).reshape(-1, 1, SIDE, SIDE).contiguous()


def photographs_folder() -> Path:
    """The folder that scikit-learn ships, found without importing scikit-learn, which takes 0.7 s in every worker."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"The photographs come with scikit-learn, which is not installed. Run {extras.install(extras.EXAMPLES)}."
        )
    return Path(spec.submodule_search_locations[0]) / "datasets" / "images"


def _labelled(pixels: torch.Tensor, label: int) -> LabelledImages:
    return LabelledImages(pixels, torch.full((len(pixels),), label, dtype=torch.int64))


def _joined(parts: list[LabelledImages] | tuple[LabelledImages, ...]) -> LabelledImages:
    return LabelledImages(torch.cat([part.pixels for part in parts]), torch.cat([part.labels for part in parts]))
