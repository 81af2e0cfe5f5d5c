"""A model that says its stages, and ways to train it over a pipeline."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassAccuracy

from scalebook.training.lightning import ModelParallel
from tests.training.lightning.async_ps.small import SAMPLES, Batch, data, trainer, weights
from tests.training.lightning.model_parallel.split_model import STEPS, Pair, adam, held_out


class Staged(Pair):
    """Its stages are cut between layers; two tensors pass between them."""

    def __init__(self, optimizer: Any = adam) -> None:
        super().__init__(optimizer)
        self.accuracy = MulticlassAccuracy(3, average="micro")

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.net(inputs) + inputs[:, :3]
        return out

    def stages(self) -> list[nn.Module]:
        return [Beginning(), *(Beside(layer) for layer in self.net), Ending()]

    def loss(self, batch: Batch) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])


class Beginning(nn.Module):
    def forward(self, inputs: Tensor) -> dict[str, Any]:
        return {"features": inputs, "others": [inputs[:, :3], None]}


class Beside(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, value: dict[str, Any]) -> dict[str, Any]:
        return {**value, "features": self.layer(value["features"])}


class Ending(nn.Module):
    def forward(self, value: dict[str, Any]) -> Tensor:
        out: Tensor = value["features"] + value["others"][0]
        return out


def staged(optimizer: Any = adam, kind: type[Staged] = Staged) -> Staged:
    torch.manual_seed(7)
    return kind(optimizer)


def train(
    folder: Path, made: Any = "auto", devices: int = 1, model: Any = None, **settings: Any
) -> tuple[Tensor, dict[str, float]]:
    """Fit with all samples in each update, so that their order does not matter; all weights, flat, and the metrics."""
    ckpt_path, batch = settings.pop("ckpt_path", None), settings.pop("batch", None)
    settings = {"max_epochs": STEPS, "check_val_every_n_epoch": STEPS, "num_sanity_val_steps": 0, **settings}
    model = staged() if model is None else model
    fitting = trainer(folder, made, devices // settings.get("num_nodes", 1), **settings)
    replicas = devices // made.together if isinstance(made, ModelParallel) else devices
    fitting.fit(model, DataLoader(data(), batch or SAMPLES // replicas, shuffle=True), held_out(), ckpt_path=ckpt_path)
    return weights(model), {name: float(value) for name, value in fitting.callback_metrics.items()}
