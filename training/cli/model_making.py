"""Makes a config's model without training it, to describe its parameters (`scalebook describe --parameters`)."""

from collections.abc import Mapping
from typing import Any

import torch
from jsonargparse import ArgumentParser
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from torch import nn

from scalebook.training.experiments import ModelParameter, ModelParameters, paths_today


def parameters(config: Mapping[str, Any]) -> ModelParameters:
    """The parameters of the config's model. Makes it on torch's device `meta`, without memory for parameters, if its
    constructor allows that.

    `config` has a `model`, and `data` if the layers depend on it.
    """
    try:
        with torch.device("meta"):
            model = _made(config)
    except Exception:  # noqa: BLE001 - a constructor that computes with values cannot do without them
        try:
            model = _made(config)
        except Exception as error:  # noqa: BLE001 - whatever it raises is what there is to say
            return ModelParameters([], f"{type(error).__name__}: {' '.join(str(error).split())}")
    return ModelParameters(parameters_of(model))


def parameters_of(model: nn.Module) -> list[ModelParameter]:
    """The parameters that the model has now."""
    layers = (layer for layer in model.modules() if isinstance(layer, nn.Embedding | nn.EmbeddingBag))
    tables = {id(layer.weight) for layer in layers if layer.sparse}
    return [
        ModelParameter(
            name,
            list(parameter.shape),
            str(parameter.dtype).removeprefix("torch."),
            parameter.requires_grad,
            id(parameter) in tables,
        )
        for name, parameter in model.named_parameters()
    ]


def _made(config: Mapping[str, Any]) -> LightningModule:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(LightningModule, "model")
    if "data" in config:
        parser.add_subclass_arguments(LightningDataModule, "data")
    made = parser.instantiate_classes(parser.parse_object(paths_today(config)))
    model: LightningModule = made.model
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.datamodule = made.get("data")  # type: ignore[attr-defined]  # as its data connector sets it
    model.trainer = trainer
    model.configure_model()
    return model
