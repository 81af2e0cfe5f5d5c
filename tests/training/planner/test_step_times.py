"""Steps that are measured or tried, of models whose schedules wait for a metric of the validation."""

from itertools import count
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from lightning.pytorch import Callback
from torch.optim.lr_scheduler import ReduceLROnPlateau
from typing_extensions import override

from scalebook.training.lightning import AsyncPS
from scalebook.training.planner import step_times
from scalebook.training.planner.step_times import StepTimes
from scalebook.training.planner.tuning.batch_try import BatchTry
from tests.gpu.models import BATCH, Dyadic, numbers
from tests.training.lightning.async_ps.small import trainer


class WaitsForValidation(Dyadic):
    @override
    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": ReduceLROnPlateau(optimizer), "monitor": "val_rmse"},
        }


@pytest.mark.parametrize("kind", ["plan", "try"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_schedule_that_waits_for_the_validation_is_left_out(kind: str, workers: int, tmp_path: Path) -> None:
    callback: Callback = StepTimes(5.0, 6) if kind == "plan" else BatchTry(BATCH, 3)
    made = trainer(
        tmp_path, AsyncPS(workers=workers), devices=workers, max_epochs=4, max_steps=-1, limit_train_batches=2,
        limit_val_batches=0, callbacks=[callback],
    )  # fmt: skip
    made.fit(WaitsForValidation("cpu"), numbers())
    assert made.state.finished


def test_the_time_of_an_all_reduce_is_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tenth takes 20 ms, and a run waits for it, too."""
    calls = count(1)
    monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor: sleep(0.02 if next(calls) % 10 == 0 else 0))
    assert 0.002 < step_times._reduce_s(4096) < 0.02
