"""Fewer batches in an epoch than workers: all of them are trained on, and who has none waits for the others."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.engine.worker.cursor import EPOCHS
from scalebook.training.lightning.async_ps.async_ps import AsyncPS
from tests.training.lightning.async_ps.small import Batch, loader, make_sgd, trainer

BATCHES, WORKERS = 2, 4


class Plain(LightningModule):
    """One layer, and no validation."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(5, 3)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return make_sgd(self)


def strategy(host: Any, rule: Any) -> AsyncPS:
    clock = ClockSettings(0.05) if host == "virtual" else None
    return AsyncPS(rule, host=host, workers=WORKERS, clock=clock, limits=Limits(deadline_s=20))


@pytest.mark.parametrize("host", ["inline", "process", "virtual"])
@pytest.mark.parametrize("rule", ["async", "sync"])
def test_epochs_without_end_end_with_the_updates(host: Any, rule: Any, tmp_path: Path) -> None:
    made = trainer(tmp_path, strategy(host, rule), max_epochs=-1, max_steps=40)
    made.fit(Plain(), loader(samples=8 * BATCHES))
    assert made.global_step == 40


@pytest.mark.thorough
@pytest.mark.parametrize("host", ["inline", "virtual"])
def test_no_batch_is_lost_in_many_epochs(host: Any, tmp_path: Path) -> None:
    """More than the workers' common memory of epochs holds."""
    epochs = EPOCHS + 200
    made = trainer(tmp_path, strategy(host, "async"), max_epochs=epochs)
    made.fit(Plain(), loader(samples=8 * BATCHES))
    assert made.global_step == BATCHES * epochs
