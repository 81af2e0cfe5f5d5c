"""What the classifiers share: cross-entropy, accuracy, and the names they are logged under."""

from abc import ABC

import torch
import torch.nn.functional as F
from torch import nn
from typing_extensions import override

from scalebook.training.tracking.names import TRAIN_LOSS, VAL_ACCURACY, VAL_LOSS
from scalebook.training.zoo.data.module import Batch
from scalebook.training.zoo.models.image_model import ImageModel


class Classifier(ImageModel, ABC):
    """A module whose `net` maps images [batch, channels, height, width] to logits [batch, classes]."""

    metrics = (VAL_ACCURACY, VAL_LOSS)

    net: nn.Module

    @override
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.net(images)
        return logits

    @override
    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        images, labels = batch
        loss = F.cross_entropy(self(images), labels)
        self.log(TRAIN_LOSS, loss, batch_size=len(labels))
        return loss

    @override
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        loss, accuracy = self._evaluate(batch)
        self.log_dict({VAL_LOSS: loss, VAL_ACCURACY: accuracy}, batch_size=len(batch[1]), sync_dist=True)

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
