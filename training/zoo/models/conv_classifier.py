"""A small convolutional classifier."""

import math

from jsonargparse.typing import ClosedUnitInterval, PositiveInt
from torch import nn
from typing_extensions import override

from scalebook.training.base.errors import ConfigError
from scalebook.training.zoo.data.module import ImageSpec
from scalebook.training.zoo.models.classifier import Classifier

GROUPS = 8  # of feature maps normalised together, where their number divides


class ConvClassifier(Classifier):
    """Convolutional classifier: blocks of convolution, group normalisation, ReLU and maximum, then one linear layer.

    Batch normalisation is avoided, because its running statistics would differ between asynchronous workers.

    Args:
        width: Feature maps of the first block; each further block has twice as many.
        blocks: Number of blocks; each halves height and width.
        dropout: Dropout rate before the linear layer.
        images: Geometry of the images; null: that of the data set.
    """

    def __init__(
        self,
        width: PositiveInt = 16,
        blocks: PositiveInt = 2,
        dropout: ClosedUnitInterval = 0.0,
        images: ImageSpec | None = None,
    ) -> None:
        super().__init__(images)
        self.save_hyperparameters(ignore=["images"])
        self.width, self.blocks, self.dropout = width, blocks, dropout
        self.configure_model()

    @override
    def build(self, images: ImageSpec) -> None:
        height, width = images.height >> self.blocks, images.width >> self.blocks
        if min(height, width) < 1:
            most = min(images.height, images.width).bit_length() - 1
            raise ConfigError(
                "model.init_args.blocks",
                f"{self.blocks} blocks leave nothing of images of {images.height} x {images.width} pixels",
                f"Use at most {most}.",
            )
        layers: list[nn.Module] = []
        features = images.channels
        for block in range(self.blocks):
            made = self.width << block
            normalization = nn.GroupNorm(math.gcd(made, GROUPS), made)
            layers += [nn.Conv2d(features, made, 3, padding=1), normalization, nn.ReLU(), nn.MaxPool2d(2)]
            features = made
        layers += [nn.Flatten(), nn.Dropout(self.dropout), nn.Linear(features * height * width, images.classes)]
        self.net = nn.Sequential(*layers)
