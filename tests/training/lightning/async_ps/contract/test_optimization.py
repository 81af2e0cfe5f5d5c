"""Gradients on their way into an update: accumulated, clipped, of several optimizers, missing."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.lightning.async_ps.contract.cases import BATCHES, Case, every, few, fitted, some
from tests.training.lightning.async_ps.contract.models import GAN, Late, Manual, Odd, Plain
from tests.training.lightning.async_ps.small import weights


@some
def test_accumulated_batches_make_one_push(case: Case, tmp_path: Path) -> None:
    _, seen = fitted(case, tmp_path, Plain(), max_epochs=1, accumulate_grad_batches=3)
    assert seen[0]["updates"] in case.about(case.updates(BATCHES // 3))


@pytest.mark.each_value
@every
@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_an_update_is_clipped_as_it_is_applied(case: Case, algorithm: str, tmp_path: Path) -> None:
    model, rate, limit = Plain(), 0.05, 1e-3
    before = weights(model).clone()
    clip: dict[str, Any] = {"gradient_clip_val": limit, "gradient_clip_algorithm": algorithm}
    _, seen = fitted(case, tmp_path, model, max_epochs=-1, max_steps=1, limit_val_batches=0, **clip)
    moved = weights(model) - before
    assert seen[0]["updates"] == 1
    size = moved.norm() if algorithm == "norm" else moved.abs().max()
    assert size.item() == pytest.approx(rate * limit, rel=1e-3)


@pytest.mark.thorough
@some
def test_a_gan_has_two_optimizers(case: Case, tmp_path: Path) -> None:
    model = GAN()
    before = {name: value.clone() for name, value in model.named_parameters()}
    made, seen = fitted(case, tmp_path, model, {"unused": True}, max_epochs=1)
    assert seen[0]["updates"] == 2 * case.updates(BATCHES)
    assert all(not torch.equal(value, before[name]) for name, value in model.named_parameters())
    assert 0 < made.callback_metrics["val/loss"].item() < 1


@few
def test_manual_optimization_steps_when_it_likes(case: Case, tmp_path: Path) -> None:
    _, seen = fitted(case, tmp_path, Manual(), {"unused": True}, max_epochs=1)
    assert seen[0]["updates"] in case.about(case.updates(BATCHES // 2))


@some
def test_tied_frozen_and_sometimes_unused_parameters(case: Case, tmp_path: Path) -> None:
    model = Odd()
    frozen, sometimes = model.frozen.weight.clone(), model.sometimes.weight.clone()
    fitted(case, tmp_path, model, {"unused": True}, max_epochs=1)
    assert model.twin.weight is model.net[0].weight
    assert torch.equal(model.frozen.weight, frozen)
    assert not torch.equal(model.sometimes.weight, sometimes)


@pytest.mark.thorough
@few
def test_parameters_may_be_made_in_the_worker(case: Case, tmp_path: Path) -> None:
    made, seen = fitted(case, tmp_path, Late(), max_epochs=1, enable_checkpointing=True)
    assert seen[0]["updates"] == case.updates(BATCHES)
    callback: Any = made.checkpoint_callback
    saved = torch.load(callback.best_model_path, weights_only=True)["state_dict"]
    assert not torch.equal(saved["late.weight"], torch.eye(3))
