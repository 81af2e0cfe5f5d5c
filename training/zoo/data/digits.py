"""The handwritten digits that come with scikit-learn: real data without a download."""

import gzip
import importlib.util
import zlib
from pathlib import Path

import numpy as np
import torch
from jsonargparse.typing import NonNegativeInt, OpenUnitInterval, PositiveFloat, PositiveInt
from typing_extensions import override

from scalebook.training.base import extras
from scalebook.training.zoo.data.module import DataError, ImageDataModule, ImageSpec, LabelledImages, Part


class Digits(ImageDataModule):
    """1,797 handwritten digits from scikit-learn, 8 x 8 pixels of 17 grey levels.

    From the test part of "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak, UCI 1998), as shipped with
    scikit-learn. By default, 1,437 images are for training and 360 for validation, with the same share of each digit.

    Args:
        batch_size: Images per batch of one worker.
        limit: Train on only this many images, taken from the start. Default: all.
        val_fraction: Share of the images held out for validation.
        split_seed: Seed of the split into training and validation images, independent of the run's seed.
        normalize: Shift and scale the pixels to mean 0 and standard deviation 1. Not for a PixelCNN.
        skew: How much labels differ between workers: alpha of a Dirichlet distribution, from which each worker draws
            its shares of the labels. With 0.1, a worker has one or two labels; with 100, all workers have nearly the
            same shares. Default: no difference. Each worker keeps its own samples, so all workers wait for the slowest
            one at the end.
    """

    needs = ("sklearn",)
    spec = ImageSpec(channels=1, height=8, width=8, levels=17, classes=10)

    def __init__(
        self,
        batch_size: PositiveInt = 32,
        limit: PositiveInt | None = None,
        val_fraction: OpenUnitInterval = 0.2,
        split_seed: NonNegativeInt = 0,
        normalize: bool = False,
        skew: PositiveFloat | None = None,
    ) -> None:
        super().__init__(batch_size, limit, val_fraction, split_seed, normalize, skew)

    @override
    def read(self, part: Part) -> LabelledImages:
        path = digits_file()
        try:
            with gzip.open(path, "rt") as lines:
                table = np.loadtxt(lines, delimiter=",").astype(np.uint8)  # [1797, 64 pixels + label]
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise DataError(f"Cannot read the digits in {path} ({error}). Reinstall scikit-learn.") from error
        pixels = table[:, :64].reshape(-1, 1, 8, 8)
        return LabelledImages(torch.from_numpy(pixels.copy()), torch.from_numpy(table[:, 64].astype(np.int64)))


def digits_file() -> Path:
    """The file that scikit-learn ships, found without importing scikit-learn, which takes 0.7 s in every worker."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"The digits come with scikit-learn, which is not installed. Run {extras.install(extras.EXAMPLES)}."
        )
    return Path(spec.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
