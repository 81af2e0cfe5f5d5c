"""What all models of images share: their layers are built once the shape of the images is known."""

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any, ClassVar

from lightning.pytorch import LightningModule
from typing_extensions import override

from scalebook.training.base import ConfigError
from scalebook.training.zoo.data.module import ImageSpec

CHECKPOINT_KEY = "images"


class ImageModel(LightningModule, ABC):
    """A module that takes the geometry of the images from the data set, so that no config has to repeat it.

    Its layers are made in `configure_model`, which Lightning calls in every worker after the data's `setup` and before
    the strategy's. A checkpoint carries the geometry, so `load_from_checkpoint` needs no data. Given `images`, the
    layers are made at once and the module works without a trainer. A model has no optimizer of its own; the config
    names one.
    """

    metrics: ClassVar[tuple[str, ...]]
    """What validation logs, the main one first."""

    def __init__(self, images: ImageSpec | None) -> None:
        super().__init__()
        self.images = images

    @abstractmethod
    def build(self, images: ImageSpec) -> None:
        """Make the layers. ConfigError if this model cannot take such images."""

    @override
    def configure_model(self) -> None:
        if self._built:
            return
        if self.images is None and self._trainer is not None:
            data = getattr(self._trainer, "datamodule", None)
            self.images = getattr(data, "images", None)
            if not isinstance(self.images, ImageSpec):
                raise ConfigError(
                    "model.init_args.images",
                    f"is missing, and {type(self).__name__} cannot read the shape of images from {type(data).__name__}",
                    "Set channels, height, width, levels and classes under images.",
                )
        if self.images is not None:
            self.build(self.images)

    @property
    def _built(self) -> bool:
        return next(self.children(), None) is not None

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.images is not None:
            checkpoint[CHECKPOINT_KEY] = asdict(self.images)
        plain_hyperparameters(self, checkpoint)

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if not self._built and CHECKPOINT_KEY in checkpoint:
            self.images = ImageSpec(**checkpoint[CHECKPOINT_KEY])
            self.build(self.images)


def plain_hyperparameters(model: LightningModule, checkpoint: dict[str, Any]) -> None:
    """Replace the checkpoint's arguments of the model by values that torch loads."""
    key = model.CHECKPOINT_HYPER_PARAMS_KEY
    checkpoint[key] = {name: _plain(value) for name, value in checkpoint.get(key, {}).items()}


def _plain(value: Any) -> Any:
    """A PositiveInt and its like as the number it is: torch loads nothing else when it loads weights only."""
    for number in (int, float):
        if isinstance(value, number) and not isinstance(value, bool):
            return number(value)
    return value
