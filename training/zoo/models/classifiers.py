"""Classifiers of images: what they share (cross-entropy, accuracy, the names they are logged under), a multi-layer
perceptron, a small convolutional network.
"""

import math
from abc import ABC
from typing import Literal

import torch
import torch.nn.functional as F
from jsonargparse.typing import ClosedUnitInterval, PositiveInt
from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from typing_extensions import override

from scalebook.training.base import ConfigError
from scalebook.training.tracking import names
from scalebook.training.zoo.data.module import Batch, ImageSpec
from scalebook.training.zoo.models.image_model import ImageModel


class Classifier(ImageModel, ABC):
    """A module whose `net` maps images [batch, channels, height, width] to logits [batch, classes]."""

    metrics = (names.VAL_ACCURACY, names.VAL_LOSS)

    net: nn.Module

    @override
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.net(images)
        return logits

    @override
    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        images, labels = batch
        loss = F.cross_entropy(self(images), labels)
        self.log(names.TRAIN_LOSS, loss, batch_size=len(labels))
        return loss

    @override
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        loss, accuracy = self._evaluate(batch)
        self.log_dict({names.VAL_LOSS: loss, names.VAL_ACCURACY: accuracy}, batch_size=len(batch[1]), sync_dist=True)

    @override
    def test_step(self, batch: Batch, batch_idx: int) -> None:
        loss, accuracy = self._evaluate(batch)
        self.log_dict({"test/loss": loss, "test/accuracy": accuracy}, batch_size=len(batch[1]), sync_dist=True)

    @override
    def predict_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        """The most likely class of each image, int64 [batch]."""
        logits: torch.Tensor = self(batch[0])
        return logits.argmax(1)

    def _evaluate(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = batch
        logits = self(images)
        return F.cross_entropy(logits, labels), (logits.argmax(1) == labels).float().mean()


ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


class MLPClassifier(Classifier):
    """Multi-layer perceptron: fully connected layers over the pixels, each with layer normalisation.

    Args:
        hidden: Units in each hidden layer.
        layers: Number of hidden layers.
        activation: Activation after each hidden layer.
        dropout: Dropout rate after each hidden layer.
        images: Shape of the images. Null: the shape of the data set's images.
    """

    def __init__(
        self,
        hidden: PositiveInt = 128,
        layers: PositiveInt = 2,
        activation: Literal["relu", "gelu", "tanh"] = "relu",
        dropout: ClosedUnitInterval = 0.0,
        images: ImageSpec | None = None,
    ) -> None:
        super().__init__(images)
        self.save_hyperparameters(ignore=["images"])
        self.hidden, self.layers, self.activation, self.dropout = hidden, layers, activation, dropout
        self.configure_model()

    @override
    def build(self, images: ImageSpec) -> None:
        stack: list[nn.Module] = [nn.Flatten()]
        features = images.channels * images.height * images.width
        for _ in range(self.layers):
            stack += [nn.Linear(features, self.hidden), nn.LayerNorm(self.hidden), ACTIVATIONS[self.activation]()]
            if self.dropout:
                stack.append(nn.Dropout(self.dropout))
            features = self.hidden
        self.net = nn.Sequential(*stack, nn.Linear(features, images.classes))

    def stages(self) -> list[nn.Module]:
        """Layer after layer, for `ModelParallel`."""
        return list(self.net.children())

    def parallel_plan(self) -> dict[str, ParallelStyle]:
        """Layers by columns and rows in turn, for `ModelParallel`. The normalisation between them needs whole rows, so
        activations are gathered after columns too; an output layer whose turn is columns, of few classes, stays whole.
        """
        layers = [f"net.{place}" for place, part in self.net.named_children() if isinstance(part, nn.Linear)]
        layers = layers[: len(layers) // 2 * 2]
        plan: dict[str, ParallelStyle] = {name: ColwiseParallel(output_layouts=Replicate()) for name in layers[::2]}
        return plan | {name: RowwiseParallel(input_layouts=Replicate()) for name in layers[1::2]}


GROUPS = 8  # of feature maps normalised together, where their number divides


class ConvClassifier(Classifier):
    """Convolutional classifier: blocks of convolution, group norm, ReLU and max pooling, then one linear layer.

    Batch normalisation is avoided, because its running statistics would differ between asynchronous workers.

    Args:
        width: Number of feature maps in the first block. Each further block has twice as many.
        blocks: Number of blocks. Each block halves height and width.
        dropout: Dropout rate before the linear layer.
        images: Shape of the images. Null: the shape of the data set's images.
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
                f"{self.blocks} blocks are too many for images of {images.height} x {images.width} pixels",
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
