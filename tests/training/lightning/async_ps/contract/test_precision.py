"""Mixed precision: what computes in half, what stays whole, and steps that a loss scaler skips."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor

from tests.training.lightning.async_ps.contract.cases import BATCHES, WORKERS, Case, few, fitted, some
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.small import Batch, data, weights

SCALE = 2.0**10
BAD_BATCH = 0


class Noting(Plain):
    """Notes its types and losses; one batch of each worker can have an infinite loss."""

    def __init__(self, has_bad_batch: bool = False) -> None:
        super().__init__()
        self.has_bad_batch = has_bad_batch
        self.notes = {"losses": [], "scales": []}

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        out = self.net(batch[0])
        loss = torch.nn.functional.cross_entropy(out, batch[1])
        self.notes["types"] = [str(out.dtype), str(self.net[0].weight.dtype)]
        self.notes["losses"].append(loss.item())
        return loss * torch.inf if self.has_bad_batch and batch_idx == BAD_BATCH else loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        plugin = self.trainer.precision_plugin
        if isinstance(plugin, MixedPrecision) and plugin.scaler is not None:
            self.notes["scales"].append(plugin.scaler.get_scale())


def loss_of_all(model: Noting) -> float:
    """On all samples, whoever trained on which."""
    inputs, labels, _ = data()[:]
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(model.net(inputs), labels).item()


@pytest.mark.thorough
@few
def test_bfloat16(case: Case, tmp_path: Path) -> None:
    model = Noting()
    before = loss_of_all(model)
    _, seen = fitted(case, tmp_path, model, max_epochs=6, precision="bf16-mixed")
    assert all(notes["types"] == ["torch.bfloat16", "torch.float32"] for notes in seen)
    assert loss_of_all(model) < 0.9 * before


@some
def test_a_loss_scaler_skips_steps_with_infinite_gradients(case: Case, tmp_path: Path) -> None:
    """A round of nothing but infinite gradients is an update without effect, as the skipped step of DDP."""
    model = Noting(has_bad_batch=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    plugin = MixedPrecision("16-mixed", "cpu", scaler=scaler)
    _, seen = fitted(case, tmp_path, model, max_epochs=1, plugins=[plugin])
    assert seen[0]["updates"] == case.updates(BATCHES) - (WORKERS if case.averaged == 1 else 0)
    assert bool(weights(model).isfinite().all())
    for notes in seen:
        assert notes["types"] == ["torch.float16", "torch.float32"]
        assert set(notes["scales"]) == {SCALE / 2}


@few
def test_clipping_sees_gradients_that_are_no_longer_scaled(case: Case, tmp_path: Path) -> None:
    model, before = Plain(), weights(Plain())
    plugin = MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu", init_scale=SCALE))
    fitted(case, tmp_path, model, max_epochs=-1, max_steps=1, plugins=[plugin], gradient_clip_val=1e-3)
    torch.testing.assert_close((weights(model) - before).norm().item(), 0.05 * 1e-3, rtol=1e-2, atol=0)
