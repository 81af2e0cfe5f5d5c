"""Refusing a data set that a model does not learn from."""

from lightning.pytorch import LightningDataModule, LightningModule

import scalebook.training.zoo.data
from scalebook.training.base import ConfigError


def refuse_other_data(model: LightningModule, wanted: type[LightningDataModule], needed: str, choose: str) -> None:
    """ConfigError if the trainer's data set is one of ours but not a `wanted` one; a user's own is accepted."""
    data = None if model._trainer is None else getattr(model._trainer, "datamodule", None)
    ours = type(data).__module__.startswith(f"{scalebook.training.zoo.data.__name__}.")
    if ours and not isinstance(data, wanted):
        raise ConfigError(
            "data", f"{type(data).__name__} has no {needed}, but {type(model).__name__} learns from them", choose
        )
