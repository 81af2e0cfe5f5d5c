"""Whose running statistics a model with batch normalisation is validated and saved with."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from tests.training.lightning.async_ps.contract.cases import Case, fitted, parameter_server
from tests.training.lightning.async_ps.contract.models import Normalised


def mean_of(seen: list[dict[str, Any]]) -> torch.Tensor:
    return torch.stack([torch.tensor(notes["running_mean"]) for notes in seen]).mean(0)


class SavedAtTheEnd(Callback):
    """Keeps what a checkpoint of the end of training would have."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.save_checkpoint(self.path, weights_only=True)


@parameter_server
def test_by_default_with_the_mean_of_the_workers(case: Case, tmp_path: Path) -> None:
    path, model = tmp_path / "end.ckpt", Normalised()
    _, seen = fitted(case, tmp_path, model, max_epochs=2, callbacks=[SavedAtTheEnd(path)])
    expected = mean_of(seen)
    assert seen[0]["running_mean"] != seen[1]["running_mean"]
    torch.testing.assert_close(torch.tensor(seen[0]["validated_with"]), expected)
    torch.testing.assert_close(model.norm.running_mean, expected)
    saved = torch.load(path, weights_only=True)["state_dict"]
    torch.testing.assert_close(saved["net.1.running_mean"], expected)
    torch.testing.assert_close(saved["net.1.running_var"], model.norm.running_var)


@parameter_server
def test_per_worker_with_worker_0s(case: Case, tmp_path: Path) -> None:
    model = Normalised()
    _, seen = fitted(case, tmp_path, model, {"buffers": "per_worker"}, max_epochs=2)
    assert seen[0]["validated_with"] == seen[0]["running_mean"] != seen[1]["running_mean"]
    assert model.norm.running_mean is not None
    assert model.norm.running_mean.tolist() == seen[0]["running_mean"]


@pytest.mark.thorough
@parameter_server
def test_frozen_ones_stay_as_they_came_while_the_layer_learns(case: Case, tmp_path: Path) -> None:
    model = Normalised()
    assert model.norm.running_mean is not None
    model.norm.running_mean.fill_(0.25)
    weight = model.norm.weight.detach().clone()
    _, seen = fitted(case, tmp_path, model, {"buffers": "frozen"}, max_epochs=2)
    assert [set(notes["running_mean"]) for notes in seen] == [{0.25}, {0.25}]
    assert bool((model.norm.running_mean == 0.25).all())
    assert not torch.equal(model.norm.weight, weight)
