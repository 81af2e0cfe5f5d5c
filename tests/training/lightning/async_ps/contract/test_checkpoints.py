"""What is written, and that a run goes on from it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from tests.training.lightning.async_ps.contract.cases import (
    BATCHES,
    WORKERS,
    Case,
    every,
    exact,
    few,
    fitted,
    in_order,
    some,
)
from tests.training.lightning.async_ps.contract.models import GAN, Plain
from tests.training.lightning.async_ps.contract.test_exact import adam
from tests.training.lightning.async_ps.contract.test_schedules import RATE, by_step
from tests.training.lightning.async_ps.small import trainer, weights

pytestmark = pytest.mark.long


def path_of(made: Trainer) -> str:
    callback: Any = made.checkpoint_callback
    return str(callback.best_model_path)


@pytest.mark.thorough
@few
def test_the_best_two_are_kept_with_the_weights_that_were_validated(case: Case, tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path / "best", "{epoch}", monitor="val/loss", save_top_k=2)
    made, _ = fitted(case, tmp_path, Plain(), max_epochs=4, callbacks=[keep], enable_checkpointing=True)
    assert sorted(path.name for path in (tmp_path / "best").iterdir()) == ["epoch=2.ckpt", "epoch=3.ckpt"]
    assert path_of(made).endswith("epoch=3.ckpt")
    for epoch in (2, 3):
        path = tmp_path / "best" / f"epoch={epoch}.ckpt"
        model, saved = Plain(), torch.load(path, weights_only=True)
        model.load_state_dict(saved["state_dict"])
        (result,) = trainer(tmp_path, "auto").validate(model, in_order(), verbose=False)
        (state,) = saved["callbacks"].values()
        assert result["val/loss"] == pytest.approx(state["current_score"].item(), rel=1e-5)


@every
def test_a_checkpoint_has_every_update_and_the_optimizers_state(case: Case, tmp_path: Path) -> None:
    model = Plain(adam)
    made, seen = fitted(case, tmp_path, model, enable_checkpointing=True)
    saved = torch.load(path_of(made), weights_only=True)
    updates = case.updates(2 * BATCHES)
    assert seen[0]["updates"] == updates
    assert [state["step"].item() for state in saved["optimizer_states"][0]["state"].values()] == [updates] * 4
    again = Plain()
    again.load_state_dict(saved["state_dict"])
    assert torch.equal(weights(again), weights(model))


@exact
def test_a_resumed_run_ends_as_an_uninterrupted_one(case: Case, tmp_path: Path) -> None:
    whole, model = Plain(adam), Plain(adam)
    fitted(case, tmp_path, whole, max_epochs=4)
    first, _ = fitted(case, tmp_path, Plain(adam), max_epochs=2, enable_checkpointing=True)
    fitted(case, tmp_path, model, max_epochs=4, enable_checkpointing=True, ckpt_path=path_of(first))
    torch.testing.assert_close(weights(model), weights(whole), rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
@some
def test_a_resumed_run_goes_on_counting(case: Case, tmp_path: Path) -> None:
    first, _ = fitted(case, tmp_path, Plain(by_step), max_epochs=1, enable_checkpointing=True)
    _, seen = fitted(case, tmp_path, Plain(by_step), max_epochs=2, enable_checkpointing=True, ckpt_path=path_of(first))
    updates = case.updates(2 * BATCHES)
    assert seen[0]["updates"] == updates
    assert seen[0]["lr"] == pytest.approx(RATE * 0.5 ** (updates // 4))
    assert len(seen) == WORKERS


@pytest.mark.thorough
@few
def test_two_optimizers_are_resumed(case: Case, tmp_path: Path) -> None:
    unused = {"unused": True}
    first, _ = fitted(case, tmp_path, GAN(), unused, max_epochs=1, enable_checkpointing=True)
    second, seen = fitted(
        case, tmp_path, GAN(), unused, max_epochs=2, enable_checkpointing=True, ckpt_path=path_of(first)
    )
    states = torch.load(path_of(second), weights_only=True)["optimizer_states"]
    assert [len(state["state"]) for state in states] == [0, 4]
    assert {state["step"].item() for state in states[1]["state"].values()} == {case.updates(2 * BATCHES)}
    assert seen[0]["updates"] == 4 * case.updates(BATCHES)
